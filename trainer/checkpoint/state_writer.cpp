#include "trainer/checkpoint/state_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "shared/base/id.h"
#include "shared/log/warn.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/weights/storage.h"

namespace atl::checkpoint {
namespace {

constexpr int kIdBytes = 8;

std::string progress_text(const TrainerState& state) {
    return nlohmann::json{{"steps", state.steps},
                          {"tokens", state.tokens},
                          {"loss_sum", state.loss_sum},
                          {"final_loss", state.final_loss},
                          {"wall_s", state.wall_s},
                          {"loss_scale", state.loss_scale},
                          {"good_steps", state.good_steps},
                          {"skipped_steps", state.skipped_steps},
                          {"untold_loss", state.untold_loss},
                          {"untold_tokens", state.untold_tokens},
                          {"earlier_updates", state.earlier_updates},
                          {"best_step", state.best_step},
                          {"best_loss", state.best_loss}}
        .dump();
}

// Whether a run can go on with these values: finite, of weights also in the format that the model computes with.
bool can_be_kept(const Section& section, std::span<const std::byte> piece) {
    const weights::DType dtype = weights::file_dtype(section.dtype);
    std::vector<float> values(piece.size() / static_cast<std::size_t>(safetensors::size_bytes(dtype)));
    if (!weights::widen(dtype, piece, values)) return false;
    if (section.saved != Saved::kExactWeights) return true;
    const weights::DType stored = weights::file_dtype(section.stored);
    if (stored == dtype) return true;
    std::vector<std::byte> rounded(values.size() * static_cast<std::size_t>(safetensors::size_bytes(stored)));
    return weights::narrow(stored, values, rounded);
}

// The tensors of a file: its sections and, behind them, the digests.
std::vector<safetensors::TensorInfo> file_tensors(const std::vector<Section>& sections,
                                                  const StateWriter::Place& place) {
    std::vector<safetensors::TensorInfo> tensors;
    for (const Section& section : sections)
        tensors.push_back({section.name, weights::file_dtype(section.dtype), {section.count}, 0, 0});
    const std::int64_t others = place.part == 0 ? place.parts - 1 : 0;
    tensors.push_back({kDigests,
                       safetensors::DType::kU8,
                       {std::ssize(sections) + others + 1, static_cast<std::int64_t>(kDigestBytes)},
                       0,
                       0});
    return tensors;
}

// Of the files beside file 0 all but those that `id` names; what cannot go now goes when the next run begins.
void remove_other_parts(const std::filesystem::path& file, const std::string& id) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(file.parent_path(), error)) {
        const std::string name = entry.path().filename().string();
        if (!is_part_file(name, file) || is_part_of(name, file, id)) continue;
        std::filesystem::remove(entry.path(), error);
        if (error) log::warn("cannot remove " + entry.path().string() + ": " + error.message());
    }
}

// The seals of file 1, 2, ….
std::vector<std::string> gather_seals(const StateWriter& writer, const parallel::ParameterStore& store,
                                      comm::Comm& comm) {
    std::string all(kDigestBytes * static_cast<std::size_t>(comm.size()), '\0');
    comm.all_gather(std::as_bytes(std::span(writer.seal())), std::as_writable_bytes(std::span(all)));
    std::vector<std::string> seals(static_cast<std::size_t>(comm.size()));
    for (int rank = 0; rank < comm.size(); ++rank) {
        seals[static_cast<std::size_t>(store.layout().rank_by_shard(rank))] =
            all.substr(static_cast<std::size_t>(rank) * kDigestBytes, kDigestBytes);
    }
    seals.erase(seals.begin());
    return seals;
}

}  // namespace

StateWriter::StateWriter(Place place, std::vector<Section> sections, safetensors::Writer writer,
                         std::string metadata_digest, std::int64_t steps)
    : place_(std::move(place)),
      sections_(std::move(sections)),
      writer_(std::move(writer)),
      metadata_digest_(std::move(metadata_digest)),
      steps_(steps) {}

Result<StateWriter> StateWriter::create(const Place& place, std::vector<Section> sections, const Metadata& of_the_run,
                                        std::int64_t steps) {
    const std::filesystem::path file = part_file(place.file, place.id, place.part);
    Metadata metadata = {{"schema", kSchema}, {"state", place.id}};
    if (place.part == 0) {
        metadata["files"] = std::to_string(place.parts);
        metadata.insert(of_the_run.begin(), of_the_run.end());
    } else {
        metadata["file"] = std::to_string(place.part);
    }
    ATOLL_TRY(auto writer, safetensors::Writer::create(file, file_tensors(sections, place), metadata));
    return StateWriter(place, std::move(sections), std::move(writer), metadata_digest(metadata), steps);
}

Error StateWriter::not_finite(const Section& section) const {
    return invalid_argument("", "the state of step " + std::to_string(steps_) + " is not saved: '" + section.name +
                                    "' holds a value that is not finite");
}

Status StateWriter::write_section(const Section& section, const Source& source) {
    digest::Sha256 digest;
    for (std::int64_t at = 0; at < section.count; at += kPieceElements) {
        ATOLL_TRY(const auto piece, source(section, at, std::min(kPieceElements, section.count - at)));
        if (!can_be_kept(section, piece)) return not_finite(section);
        digest.update(as_text(piece));
        ATOLL_RETURN_IF_ERROR(writer_.append(piece));
    }
    digests_ += digest.finish();
    return {};
}

Status StateWriter::write(const Source& source) {
    for (const Section& section : sections_) ATOLL_RETURN_IF_ERROR(write_section(section, source));
    if (place_.part == 0) {
        seal_.assign(kDigestBytes, ' ');
        return writer_.sync();
    }
    digests_ += metadata_digest_;
    seal_ = digest::sha256(digests_);
    ATOLL_RETURN_IF_ERROR(writer_.append(std::as_bytes(std::span(digests_))));
    return writer_.finish();
}

Status StateWriter::finish(std::span<const std::string> seals) {
    for (const std::string& seal : seals) digests_ += seal;
    digests_ += metadata_digest_;
    ATOLL_RETURN_IF_ERROR(writer_.append(std::as_bytes(std::span(digests_))));
    return writer_.finish();
}

void StateWriter::discard() const {
    std::error_code error;  // what cannot go now goes when the next run begins
    if (place_.part > 0) std::filesystem::remove(part_file(place_.file, place_.id, place_.part), error);
}

Result<StateWriter> open_writer(const std::filesystem::path& file, const parallel::ParameterStore& store,
                                const kernels::Backend& backend, comm::Comm& comm, Content content,
                                const TrainerState& state, Metadata of_the_run) {
    std::string id = random_hex(kIdBytes);
    comm.broadcast(std::as_writable_bytes(std::span(id)), 0);
    check(store.layout().mesh.model_parts() == 1, "open_writer: a state is of ranks that have the same units");
    const StateWriter::Place place{file, id, store.layout().rank_by_shard(comm.rank()), comm.size()};
    of_the_run.insert({{"progress", progress_text(state)}, {"kernels", backend.name()}});
    return StateWriter::create(place, own_sections(store, content), of_the_run, state.steps);
}

Status commit(StateWriter& writer, const Status& written, const parallel::ParameterStore& store, comm::Comm& comm) {
    Status status = comm.agree(parallel::write_outcome(written));
    if (status.ok()) {
        const std::vector<std::string> seals = gather_seals(writer, store, comm);
        status = comm.agree(parallel::write_outcome(comm.rank() == 0 ? writer.finish(seals) : Status()));
    }
    if (!status.ok()) {
        writer.discard();
    } else if (comm.rank() == 0) {
        remove_other_parts(writer.place().file, writer.place().id);
    }
    return status;
}

}  // namespace atl::checkpoint
