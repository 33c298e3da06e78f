#include "trainer/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/log/warn.h"
#include "shared/safetensors/file.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/weights/storage.h"

namespace atl::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "4";
// Of the tensors before it, in their order, and of the metadata: [tensors + 1, kDigestBytes].
constexpr const char* kDigests = "sha256";
constexpr std::size_t kDigestBytes = 64;  // hexadecimal
constexpr std::uint64_t kReadBytes = std::uint64_t{1} << 20;
constexpr std::array<const char*, 3> kKinds = {"weights", "moment1", "moment2"};

using Saved = parallel::ParameterStore::Saved;

std::string tensor_name(std::size_t kind, const model::FsdpUnit& unit) {
    return std::string(kKinds[kind]) + "." + unit.name;
}

std::size_t kind_count(const parallel::ParameterStore& store) {
    return 1 + static_cast<std::size_t>(store.moment_count());
}

// Elements [begin, begin + count) of a unit that has element_count.
struct Kept {
    std::int64_t element_count;
    std::int64_t begin;
    std::int64_t count;
};

std::vector<safetensors::TensorInfo> state_tensors(const parallel::ParameterStore& store) {
    std::vector<safetensors::TensorInfo> tensors;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (!store.trains(unit)) continue;
        for (std::size_t kind = 0; kind < kind_count(store); ++kind) {
            tensors.push_back({tensor_name(kind, store.model().units[unit]),
                               weights::file_dtype(store.saved_dtype(static_cast<Saved>(kind), unit)),
                               {store.shard_spec(unit).element_count},
                               0,
                               0});
        }
    }
    tensors.push_back(
        {kDigests, safetensors::DType::kU8, {std::ssize(tensors) + 1, static_cast<std::int64_t>(kDigestBytes)}, 0, 0});
    return tensors;
}

std::string trainer_state_text(const TrainerState& state) {
    return json{{"steps", state.steps},
                {"tokens", state.tokens},
                {"loss_sum", state.loss_sum},
                {"final_loss", state.final_loss},
                {"wall_s", state.wall_s},
                {"loss_scale", state.loss_scale.scale},
                {"good_steps", state.loss_scale.good_steps},
                {"skipped_steps", state.loss_scale.skipped}}
        .dump();
}

std::string metadata_digest(const std::map<std::string, std::string>& metadata) {
    return digest::sha256(json(metadata).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Whether a run can go on with these values: finite, of weights also in the format that the model computes with.
bool can_be_kept(const parallel::ParameterStore& store, Saved saved, std::size_t unit,
                 std::span<const std::byte> piece) {
    const weights::DType dtype = weights::file_dtype(store.saved_dtype(saved, unit));
    std::vector<float> values(piece.size() / static_cast<std::size_t>(safetensors::size_bytes(dtype)));
    if (!weights::widen(dtype, piece, values)) return false;
    if (saved != Saved::kExactWeights) return true;
    const weights::DType stored = weights::file_dtype(store.storage(unit));
    if (stored == dtype) return true;
    std::vector<std::byte> rounded(values.size() * static_cast<std::size_t>(safetensors::size_bytes(stored)));
    return weights::narrow(stored, values, rounded);
}

// Writes the tensors and, behind them, their digests.
class CheckpointWriter {
  public:
    static Result<CheckpointWriter> create(const std::filesystem::path& file, const parallel::ParameterStore& store,
                                           const kernels::Backend& backend, const TrainerState& state,
                                           const std::string& fingerprint) {
        const std::map<std::string, std::string> metadata = {{"schema", kSchema},
                                                             {"progress", trainer_state_text(state)},
                                                             {"fingerprint", fingerprint},
                                                             {"kernels", backend.name()}};
        ATOLL_TRY(auto writer, safetensors::Writer::create(file, state_tensors(store), metadata));
        return CheckpointWriter(std::move(writer), metadata_digest(metadata));
    }

    Status append(std::span<const std::byte> piece) {
        tensor_->update(as_text(piece));
        return writer_.append(piece);
    }
    void end_tensor() {
        digests_ += tensor_->finish();
        tensor_.emplace();
    }
    Status finish() {
        digests_ += metadata_digest_;
        ATOLL_RETURN_IF_ERROR(writer_.append(std::as_bytes(std::span(digests_))));
        return writer_.finish();
    }

  private:
    CheckpointWriter(safetensors::Writer writer, std::string metadata_digest)
        : writer_(std::move(writer)), metadata_digest_(std::move(metadata_digest)) {
        tensor_.emplace();
    }

    safetensors::Writer writer_;
    std::string metadata_digest_;
    std::optional<digest::Sha256> tensor_;  // the one being written
    std::string digests_;
};

// Hands over the elements of a unit's tensor that `kept` keeps, a piece at a time, with the place of the first among
// them. Pages of a mapping would stay in memory beside what is made of them.
Status read_pieces(const safetensors::File& file, const std::string& name, tensor::DType dtype, const Kept& kept,
                   const std::function<Status(std::int64_t at, std::span<const std::byte> piece)>& take) {
    const safetensors::TensorInfo* info = file.header().find(name);
    if (info == nullptr || info->dtype != weights::file_dtype(dtype) || info->element_count() != kept.element_count) {
        return invalid_argument(file.path().string(),
                                "the training state lacks '" + name + "' or has it in another size");
    }
    std::vector<std::byte> piece;
    for (std::int64_t done = 0; done < kept.count; done += parallel::GatherToRank0::kPieceElements) {
        const std::int64_t count = std::min(parallel::GatherToRank0::kPieceElements, kept.count - done);
        piece.resize(static_cast<std::size_t>(tensor::size_bytes(dtype, count)));
        const std::int64_t begin = tensor::size_bytes(dtype, kept.begin + done);
        ATOLL_RETURN_IF_ERROR(file.read(*info, static_cast<std::uint64_t>(begin), piece));
        ATOLL_RETURN_IF_ERROR(take(done, piece));
    }
    return {};
}

Status load_tensor(const safetensors::File& file, const std::string& name, parallel::ParameterStore& store, Saved saved,
                   std::size_t unit, const Kept& kept, kernels::Backend& backend) {
    const auto write = [&](std::int64_t at, std::span<const std::byte> piece) {
        return store.write(backend, saved, unit, at, piece);
    };
    return read_pieces(file, name, store.saved_dtype(saved, unit), kept, write);
}

// The weights that are rounded masters, from those.
Status load_rounded(const safetensors::File& file, const std::string& name, const tensor::Tensor& into,
                    const Kept& kept, kernels::Backend& backend) {
    std::vector<float> values;
    const auto round = [&](std::int64_t at, std::span<const std::byte> piece) -> Status {
        values.resize(piece.size() / sizeof(float));
        std::memcpy(values.data(), piece.data(), piece.size());
        if (weights::store_values(values, parallel::flat_range(into, at, std::ssize(values)), backend)) return {};
        return invalid_argument(file.path().string(), "'" + name + "' has a value beyond the range of --precision");
    };
    return read_pieces(file, name, tensor::DType::kF32, kept, round);
}

Status load_unit(const safetensors::File& file, parallel::ParameterStore& store, std::size_t unit,
                 kernels::Backend& backend) {
    const auto real = [&](std::int64_t begin, std::int64_t count) {
        const std::int64_t elements = store.shard_spec(unit).element_count;
        return Kept{elements, begin, std::clamp<std::int64_t>(elements - begin, 0, count)};
    };
    for (std::size_t kind = 0; kind < kind_count(store); ++kind) {
        const auto saved = static_cast<Saved>(kind);
        const parallel::ParameterStore::Range range = store.saved_range(saved, unit);
        const std::string name = tensor_name(kind, store.model().units[unit]);
        ATOLL_RETURN_IF_ERROR(load_tensor(file, name, store, saved, unit, real(range.begin, range.count), backend));
    }
    if (!store.has_masters(unit)) return {};
    const std::string masters = tensor_name(0, store.model().units[unit]);
    const tensor::Tensor& weights = store.weights(unit);
    return load_rounded(file, masters, weights, real(store.kept_begin(weights, unit), weights.element_count()),
                        backend);
}

Result<safetensors::File> open_state(const std::filesystem::path& path) {
    auto file = safetensors::File::open(path);
    if (file.ok() || file.error().code != ErrorCode::kInvalidArgument) return file;
    Error error = file.error();
    error.message += ": the file is damaged; begin anew with --overwrite";
    return error;
}

std::string find_metadata(const safetensors::File& file, const char* key) {
    const auto found = file.header().metadata.find(key);
    return found == file.header().metadata.end() ? std::string() : found->second;
}

// That it is a state that this version wrote, with what it says of the run.
Status check_metadata(const safetensors::File& file) {
    const std::string name = file.path().string();
    if (find_metadata(file, "schema") != kSchema) {
        return invalid_argument(name,
                                "is not a training state of this version of atoll-trainer, which reads no other: let "
                                "that which saved it finish the run, or begin anew with --overwrite");
    }
    const auto& tensors = file.header().tensors;
    const bool last = !tensors.empty() && tensors.back().name == kDigests &&
                      tensors.back().end - tensors.back().begin == tensors.size() * kDigestBytes;
    if (!last) return invalid_argument(name, "the training state has no digests");
    if (as_text(file.bytes(tensors.back())).ends_with(metadata_digest(file.header().metadata))) return {};
    return invalid_argument(
        name, "what it says of the run is not what was saved: the file is damaged; begin anew with --overwrite");
}

// Takes a member that must be there and of that very kind: counts are whole and not below 0.
bool take(const json& object, const char* key, std::int64_t& into) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned()) return false;
    into = found->get<std::int64_t>();
    return into >= 0;
}

bool take(const json& object, const char* key, double& into) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return false;
    into = found->get<double>();
    return true;
}

Result<TrainerState> parse_trainer_state(const safetensors::File& file, const std::string& fingerprint) {
    const std::string name = file.path().string();
    ATOLL_RETURN_IF_ERROR(check_metadata(file));
    const std::string differing = differences(find_metadata(file, "fingerprint"), fingerprint);
    if (!differing.empty()) {
        return conflict("--resume: the run that saved " + name + " had " + differing +
                            "; go on with the same, or begin anew with --overwrite",
                        name);
    }
    const json all = json::parse(find_metadata(file, "progress"), nullptr, false);
    TrainerState state;
    const bool is_whole = all.is_object() && take(all, "steps", state.steps) && take(all, "tokens", state.tokens) &&
                          take(all, "loss_sum", state.loss_sum) && take(all, "final_loss", state.final_loss) &&
                          take(all, "wall_s", state.wall_s) && take(all, "loss_scale", state.loss_scale.scale) &&
                          take(all, "good_steps", state.loss_scale.good_steps) &&
                          take(all, "skipped_steps", state.loss_scale.skipped);
    if (!is_whole) return invalid_argument(name, "the training state does not say how far the run came");
    return state;
}

// On rank 0. Other kernels than those that brought the run so far add up in another order, to other bits.
Status check_kernels(const safetensors::File& file, const kernels::Backend& backend, bool deterministic) {
    const std::string had = find_metadata(file, "kernels");
    if (had == backend.name()) return {};
    const std::string differs = "--resume: the run that saved " + file.path().string() + " computed with " + had +
                                ", this one with " + backend.name() + ", whose sums differ a little";
    if (deterministic) {
        return conflict(differs + ": go on with a machine of that kind and the same ATOLL_INSTRUCTION_SET",
                        "--deterministic");
    }
    log::warn(differs);
    return {};
}

// Whether there is a state, as rank 0 sees it: that decides for all.
Result<bool> rank0_finds(const std::filesystem::path& file, comm::Comm& comm) {
    Status status;
    std::byte found{0};
    if (comm.rank() == 0) {
        struct stat about{};
        found = std::byte{::stat(file.c_str(), &about) == 0};
        if (found == std::byte{0} && errno != ENOENT) status = file_error(file, "look for");
    }
    ATOLL_RETURN_IF_ERROR(comm.agree(status));
    comm.broadcast(std::span(&found, 1), 0);
    return found != std::byte{0};
}

// That the tensors are what was written. Each rank reads its share of them whole.
Status check_digests(const safetensors::File& file, const comm::Comm& comm) {
    const std::string name = file.path().string();
    const auto& tensors = file.header().tensors;
    const std::string_view digests = as_text(file.bytes(tensors.back()));
    std::vector<std::byte> block;
    const auto share = static_cast<std::size_t>(comm.size());
    for (auto i = static_cast<std::size_t>(comm.rank()); i + 1 < tensors.size(); i += share) {
        const std::uint64_t size = tensors[i].end - tensors[i].begin;
        digest::Sha256 digest;
        for (std::uint64_t done = 0; done < size; done += block.size()) {
            block.resize(std::min<std::uint64_t>(kReadBytes, size - done));
            ATOLL_RETURN_IF_ERROR(file.read(tensors[i], done, block));
            digest.update(as_text(block));
        }
        if (digest.finish() == digests.substr(i * kDigestBytes, kDigestBytes)) continue;
        return invalid_argument(
            name, "'" + tensors[i].name + "' is not what was saved: the file is damaged; begin anew with --overwrite");
    }
    return {};
}

// That this rank sees the state that rank 0 sees.
Status check_same(const safetensors::File& file, comm::Comm& comm) {
    const std::string mine = metadata_digest(file.header().metadata);
    std::string first = mine;
    comm.broadcast(std::as_writable_bytes(std::span(first)), 0);
    if (first == mine) return {};
    return conflict(file.path().string() + " is another state on this rank than on rank 0", file.path().string());
}

}  // namespace

std::string differences(const std::string& had, const std::string& now) {
    const json before = json::parse(had, nullptr, false);
    const json after = json::parse(now, nullptr, false);
    if (!before.is_object() || !std::ranges::all_of(before, &json::is_object)) return "no settings that can be read";
    json either = before;
    either.update(after, true);
    std::string all;
    for (const auto& [part, members] : either.items()) {
        for (const auto& [key, value] : members.items()) {
            const json::json_pointer at = json::json_pointer() / part / key;
            const json was = before.value(at, json()), is = after.value(at, json());
            if (was == is) continue;
            all += (all.empty() ? "" : ", ") + (part == "flags" ? "--" + key : part + "." + key) + " " + was.dump() +
                   " (now " + is.dump() + ")";
        }
    }
    return all;
}

Status save_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store, kernels::Backend& backend,
                       comm::Comm& comm, const TrainerState& state, const std::string& fingerprint) {
    Status status;
    std::optional<CheckpointWriter> writer;
    if (comm.rank() == 0) {
        auto opened = CheckpointWriter::create(file, store, backend, state, fingerprint);
        if (opened.ok()) {
            writer.emplace(std::move(opened).value());
        } else {
            status = opened.error();
        }
    }
    ATOLL_RETURN_IF_ERROR(comm.agree(parallel::write_outcome(status)));
    parallel::GatherToRank0 pieces(backend, comm);
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (!store.trains(unit)) continue;
        for (std::size_t kind = 0; kind < kind_count(store); ++kind) {
            const auto saved = static_cast<Saved>(kind);
            const auto append = [&](std::span<const std::byte> piece) {
                if (!status.ok()) return;
                status =
                    can_be_kept(store, saved, unit, piece)
                        ? writer->append(piece)
                        : invalid_argument("", "the state of step " + std::to_string(state.steps) + " is not saved: '" +
                                                   tensor_name(kind, store.model().units[unit]) +
                                                   "' holds a value that is not finite");
            };
            const Status read = pieces.gather_bytes(store, saved, unit, append);
            if (status.ok()) status = read;
            if (writer) writer->end_tensor();
        }
    }
    ATOLL_RETURN_IF_ERROR(
        comm.agree(parallel::write_outcome(status)));  // of every rank's pieces, before the last state goes
    if (writer) status = writer->finish();
    return comm.agree(parallel::write_outcome(status));
}

Result<std::optional<TrainerState>> load_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store,
                                                    kernels::Backend& backend, comm::Comm& comm,
                                                    const std::string& fingerprint, bool deterministic) {
    ATOLL_TRY(const bool found, rank0_finds(file, comm));
    if (!found) return std::optional<TrainerState>();
    ATOLL_TRY(const auto opened, comm::agreed(comm, open_state(file)));
    ATOLL_TRY(const TrainerState state, comm::agreed(comm, parse_trainer_state(opened, fingerprint)));
    ATOLL_RETURN_IF_ERROR(comm.agree(check_same(opened, comm)));
    ATOLL_RETURN_IF_ERROR(comm.agree(check_digests(opened, comm)));
    ATOLL_RETURN_IF_ERROR(comm.agree(comm.rank() == 0 ? check_kernels(opened, backend, deterministic) : Status()));
    Status status;
    for (std::size_t unit = 0; unit < store.unit_count() && status.ok(); ++unit) {
        if (store.trains(unit)) status = load_unit(opened, store, unit, backend);
    }
    ATOLL_RETURN_IF_ERROR(comm.agree(status));
    return std::optional<TrainerState>(state);
}

}  // namespace atl::checkpoint
