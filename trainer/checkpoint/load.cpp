#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/log/warn.h"
#include "shared/safetensors/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/state_format.h"
#include "trainer/comm/read_progress.h"
#include "trainer/weights/storage.h"

namespace atl::checkpoint {
namespace {

using nlohmann::json;

constexpr std::uint64_t kReadBytes = std::uint64_t{1} << 20;
constexpr int kFilesMax = 1 << 20;

std::string find_metadata(const safetensors::File& file, const char* key) {
    const auto found = file.header().metadata.find(key);
    return found == file.header().metadata.end() ? std::string() : found->second;
}

// What to do where a state, or an optimizer's, is not what it should be; nothing, where the run starts without it.
constexpr const char* kBeginAnew = "begin anew with --overwrite";
constexpr const char* kWithoutOptimizer = "start without --optimizer-from";
constexpr const char* kNothing = "";

const char* optimizer_remedy(const std::string& name) {
    return name.empty() ? kWithoutOptimizer : kNothing;
}

// `what` is wrong; `first` or, if that cannot be done, `remedy` helps.
std::string with_remedy(const std::string& what, const std::string& first, std::string_view remedy) {
    if (remedy.empty()) return what;
    return what + "; " + first + (first.empty() ? "" : ", or ") + std::string(remedy);
}

Error damaged(const std::filesystem::path& path, const std::string& what, const char* remedy) {
    return invalid_argument(path.string(), with_remedy(what + ": the file is damaged", "", remedy));
}

// The rows of a file's digests.
std::string_view digests_of(const safetensors::File& file) {
    return as_text(file.bytes(file.header().tensors.back()));
}

std::string_view digest_row(const safetensors::File& file, std::size_t row) {
    return digests_of(file).substr(row * kDigestBytes, kDigestBytes);
}

// One file of a state, as this version wrote it: with digests of its tensors, of so many other files and of its
// metadata, which is what it was.
Status check_file(const safetensors::File& file, std::size_t others, const char* remedy) {
    const auto& tensors = file.header().tensors;
    const bool last = !tensors.empty() && tensors.back().name == kDigests &&
                      tensors.back().end - tensors.back().begin == (tensors.size() + others) * kDigestBytes;
    if (!last) return damaged(file.path(), "its digests are not there", remedy);
    if (digests_of(file).ends_with(metadata_digest(file.header().metadata))) return {};
    return damaged(file.path(), "what it says of the run is not what was saved", remedy);
}

Result<safetensors::File> open_file(const std::filesystem::path& path, const char* remedy) {
    auto file = safetensors::File::open(path);
    if (file.ok() || file.error().code != ErrorCode::kInvalidArgument) return file;
    Error error = file.error();
    error.message = with_remedy(error.message + ": the file is damaged", "", remedy);
    return error;
}

// A state whose file 0 is open.
class SavedState {
  public:
    static Result<SavedState> open(const std::filesystem::path& path, const char* remedy) {
        ATOLL_TRY(auto file, open_file(path, remedy));
        if (find_metadata(file, "schema") != kSchema) {
            return invalid_argument(
                path.string(),
                with_remedy("is not a training state of this version of atoll-trainer, which reads no other",
                            "let that which saved it finish the run", remedy));
        }
        const std::string text = find_metadata(file, "files");
        int files = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), files);
        if (error != std::errc() || end != text.data() + text.size() || files < 1 || files > kFilesMax)
            return damaged(path, "what it says of the run is not what was saved", remedy);
        ATOLL_RETURN_IF_ERROR(check_file(file, static_cast<std::size_t>(files) - 1, remedy));
        return SavedState(std::move(file), files, remedy);
    }

    const safetensors::File& first() const { return first_; }
    int files() const { return files_; }
    const char* remedy() const { return remedy_; }

    // Calls use(file), which is opened for it alone: a run may have more files than a process may open.
    Status with_file(int part, const std::function<Status(const safetensors::File&)>& use) const {
        if (part == 0) return use(first_);
        const std::string id = find_metadata(first_, "state");
        const std::filesystem::path path = part_file(first_.path(), id, part);
        auto file = open_file(path, remedy_);
        if (!file.ok() && file.error().code == ErrorCode::kNotFound) {
            return invalid_argument(
                path.string(), with_remedy("is a file of the state in " + first_.path().string() + " and is not there",
                                           "put it back", remedy_));
        }
        if (!file.ok()) return file.error();
        ATOLL_RETURN_IF_ERROR(check_file(*file, 0, remedy_));
        const std::size_t seal = first_.header().tensors.size() - 1 + static_cast<std::size_t>(part) - 1;
        if (digest::sha256(digests_of(*file)) != digest_row(first_, seal))
            return damaged(path, "it is not the file that was saved with " + first_.path().string(), remedy_);
        return use(*file);
    }

  private:
    SavedState(safetensors::File first, int files, const char* remedy)
        : first_(std::move(first)), files_(files), remedy_(remedy) {}

    safetensors::File first_;
    int files_;
    const char* remedy_;
};

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

// That a file is of a run with this fingerprint. `option`: what asks for it.
Status check_fingerprint(const safetensors::File& file, const std::string& fingerprint, const std::string& option,
                         const char* remedy) {
    const std::string name = file.path().string();
    const std::string differing = differences(find_metadata(file, kFingerprint), fingerprint);
    if (differing.empty()) return {};
    return conflict(
        with_remedy(option + ": the run that saved " + name + " had " + differing, "go on with the same", remedy),
        name);
}

// That a file is of the run with this name; empty: of any.
Status check_name(const safetensors::File& file, const std::string& name) {
    const std::string had = find_metadata(file, kName);
    if (name.empty() || had == name) return {};
    return conflict("--optimizer-if-named: the moments in " + file.path().string() + " are those of '" + had +
                        "', not of '" + name + "'",
                    file.path().string());
}

Result<TrainerState> parse_trainer_state(const safetensors::File& file) {
    const std::string name = file.path().string();
    const json all = json::parse(find_metadata(file, "progress"), nullptr, false);
    TrainerState state;
    bool is_whole = all.is_object() && take(all, "steps", state.steps) && take(all, "tokens", state.tokens) &&
                    take(all, "loss_sum", state.loss_sum) && take(all, "final_loss", state.final_loss) &&
                    take(all, "wall_s", state.wall_s) && take(all, "loss_scale", state.loss_scale) &&
                    take(all, "good_steps", state.good_steps) && take(all, "skipped_steps", state.skipped_steps);
    if (all.is_object() && all.contains("untold_tokens"))  // states of earlier releases have none
        is_whole =
            is_whole && take(all, "untold_loss", state.untold_loss) && take(all, "untold_tokens", state.untold_tokens);
    if (all.is_object() && all.contains("earlier_updates"))  // nor this
        is_whole = is_whole && take(all, "earlier_updates", state.earlier_updates);
    if (all.is_object() && all.contains("best_step"))  // nor these
        is_whole = is_whole && take(all, "best_step", state.best_step) && take(all, "best_loss", state.best_loss);
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

Status check_tensor(const safetensors::File& file, std::size_t index, comm::ReadProgress& progress,
                    const char* remedy) {
    const safetensors::TensorInfo& tensor = file.header().tensors[index];
    const std::uint64_t size = tensor.end - tensor.begin;
    std::vector<std::byte> block;
    digest::Sha256 digest;
    for (std::uint64_t done = 0; done < size; done += block.size()) {
        block.resize(std::min<std::uint64_t>(kReadBytes, size - done));
        ATOLL_RETURN_IF_ERROR(file.read(tensor, done, block));
        digest.update(as_text(block));
        progress.add(0);
    }
    progress.add(1);
    if (digest.finish() == digest_row(file, index)) return {};
    return damaged(file.path(), "'" + tensor.name + "' is not what was saved", remedy);
}

// That the tensors are what was written. Each rank reads its share of them whole: neighbours, so that it opens few
// files. Of all files the first has the most tensors.
Status check_digests(const SavedState& state, comm::Comm& comm) {
    const auto share = [&](int rank) {
        const std::size_t all = static_cast<std::size_t>(state.files()) * (state.first().header().tensors.size() - 1);
        return all * static_cast<std::size_t>(rank) / static_cast<std::size_t>(comm.size());
    };
    const std::size_t tensors = state.first().header().tensors.size() - 1;
    const std::size_t begin = share(comm.rank()), end = share(comm.rank() + 1);
    comm::ReadProgress progress(comm, "checking the state", static_cast<std::int64_t>(end - begin));
    for (int part = 0; part < state.files(); ++part) {
        const std::size_t first = static_cast<std::size_t>(part) * tensors;
        const std::size_t from = std::max(begin, first), to = std::min(end, first + tensors);
        if (from >= to) continue;
        ATOLL_RETURN_IF_ERROR(state.with_file(part, [&](const safetensors::File& file) {
            const std::size_t last = std::min(to - first, file.header().tensors.size() - 1);
            Status status;
            for (std::size_t i = from - first; i < last && status.ok(); ++i)
                status = check_tensor(file, i, progress, state.remedy());
            return status;
        }));
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

// What a rank takes of a file: elements [in_file, in_file + count) of a tensor that has section_count there.
struct Taking {
    std::string name;
    Saved saved = Saved::kExactWeights;
    std::size_t unit = 0;
    bool rounds = false;  // masters, to the weights that the model computes with
    std::int64_t at = 0;  // where they go, counted from what this rank keeps
    std::int64_t in_file = 0;
    std::int64_t count = 0;
    std::int64_t section_count = 0;
};

// Of the state's files, what this rank keeps of each.
class Takings {
  public:
    Takings(const SavedState& state, const parallel::ParameterStore& store, Content content)
        : state_(state), store_(store), content_(content) {}

    Result<std::vector<Taking>> of(int part) const {
        std::vector<Taking> all;
        for (std::size_t unit = 0; unit < store_.unit_count(); ++unit) {
            if (!store_.trains(unit)) continue;
            for (const Saved saved : saved_kinds(store_, content_)) {
                const parallel::ParameterStore::Range kept = store_.saved_range(saved, unit);
                ATOLL_RETURN_IF_ERROR(add(all, part, {.name = {}, .saved = saved, .unit = unit}, kept));
            }
            if (content_ != Content::kState || !store_.has_masters(unit)) continue;
            const tensor::Tensor& weights = store_.weights(unit);
            ATOLL_RETURN_IF_ERROR(add(all, part, {.name = {}, .unit = unit, .rounds = true},
                                      {store_.kept_begin(weights, unit), weights.element_count()}));
        }
        return all;
    }

  private:
    Status add(std::vector<Taking>& all, int part, Taking taking, const parallel::ParameterStore::Range& kept) const {
        taking.name = tensor_name(taking.saved, store_.model().units[taking.unit]);
        const std::int64_t elements = store_.shard_spec(taking.unit).element_count;
        const safetensors::TensorInfo* first = state_.first().header().find(taking.name);
        const std::int64_t section = first == nullptr ? 0 : first->element_count();
        if (section <= 0 || section > elements || section < (elements + state_.files() - 1) / state_.files()) {
            return invalid_argument(state_.first().path().string(),
                                    "the training state lacks '" + taking.name + "' or has it in another size");
        }
        const std::int64_t section_begin = std::min(section * part, elements);
        const std::int64_t section_end = std::min(section_begin + section, elements);
        const std::int64_t begin = std::max(kept.begin, section_begin);
        taking.count = std::min(kept.begin + kept.count, section_end) - begin;
        if (taking.count <= 0) return {};
        taking.at = begin - kept.begin;
        taking.in_file = begin - section_begin;
        taking.section_count = section_end - section_begin;
        all.push_back(std::move(taking));
        return {};
    }

    const SavedState& state_;
    const parallel::ParameterStore& store_;
    Content content_;
};

// Puts a taking where it belongs, a piece at a time: pages of a mapping would stay in memory beside what is made of
// them.
class Loader {
  public:
    Loader(parallel::ParameterStore& store, kernels::Backend& backend, comm::ReadProgress& progress)
        : store_(store), backend_(backend), progress_(progress) {}

    Status load(const safetensors::File& file, const Taking& taking) {
        const tensor::DType dtype = store_.saved_dtype(taking.saved, taking.unit);
        const safetensors::TensorInfo* info = file.header().find(taking.name);
        if (info == nullptr || info->dtype != weights::file_dtype(dtype) ||
            info->element_count() != taking.section_count) {
            return invalid_argument(file.path().string(),
                                    "the training state lacks '" + taking.name + "' or has it in another size");
        }
        for (std::int64_t done = 0; done < taking.count; done += kPieceElements) {
            piece_.resize(
                static_cast<std::size_t>(tensor::size_bytes(dtype, std::min(kPieceElements, taking.count - done))));
            const std::int64_t begin = tensor::size_bytes(dtype, taking.in_file + done);
            ATOLL_RETURN_IF_ERROR(file.read(*info, static_cast<std::uint64_t>(begin), piece_));
            ATOLL_RETURN_IF_ERROR(taking.rounds
                                      ? round(file, taking, taking.at + done)
                                      : store_.write(backend_, taking.saved, taking.unit, taking.at + done, piece_));
            progress_.add(0);
        }
        return {};
    }

  private:
    Status round(const safetensors::File& file, const Taking& taking, std::int64_t at) {
        values_.resize(piece_.size() / sizeof(float));
        std::memcpy(values_.data(), piece_.data(), piece_.size());
        const tensor::Tensor into = parallel::flat_range(store_.weights(taking.unit), at, std::ssize(values_));
        if (weights::store_values(values_, into, backend_)) return {};
        return invalid_argument(file.path().string(),
                                "'" + taking.name + "' has a value beyond the range of --precision");
    }

    parallel::ParameterStore& store_;
    kernels::Backend& backend_;
    comm::ReadProgress& progress_;
    std::vector<std::byte> piece_;
    std::vector<float> values_;
};

Status load_files(const SavedState& state, parallel::ParameterStore& store, kernels::Backend& backend, comm::Comm& comm,
                  Content content) {
    const Takings takings(state, store, content);
    comm::ReadProgress progress(comm, "loading the state", state.files());
    Loader loader(store, backend, progress);
    for (int part = 0; part < state.files(); ++part, progress.add(1)) {
        ATOLL_TRY(const auto wanted, takings.of(part));
        if (wanted.empty()) continue;
        ATOLL_RETURN_IF_ERROR(state.with_file(part, [&](const safetensors::File& file) {
            Status status;
            for (std::size_t i = 0; i < wanted.size() && status.ok(); ++i) status = loader.load(file, wanted[i]);
            return status;
        }));
    }
    return {};
}

// Of the state in an open file: what it says of its run, once all ranks see the same, whole, of the right run.
Result<TrainerState> check_state(const SavedState& saved, comm::Comm& comm, const std::string& fingerprint,
                                 const std::string& option) {
    const safetensors::File& first = saved.first();
    ATOLL_RETURN_IF_ERROR(comm.agree(check_fingerprint(first, fingerprint, option, saved.remedy())));
    ATOLL_TRY(const TrainerState state, comm::agreed(comm, parse_trainer_state(first)));
    ATOLL_RETURN_IF_ERROR(comm.agree(check_same(first, comm)));
    ATOLL_RETURN_IF_ERROR(comm.agree(check_digests(saved, comm)));
    return state;
}

}  // namespace

Result<std::optional<TrainerState>> load_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store,
                                                    kernels::Backend& backend, comm::Comm& comm,
                                                    const std::string& fingerprint, bool deterministic) {
    ATOLL_TRY(const bool found, rank0_finds(file, comm));
    if (!found) return std::optional<TrainerState>();
    ATOLL_TRY(const auto saved, comm::agreed(comm, SavedState::open(file, kBeginAnew)));
    ATOLL_TRY(const TrainerState state, check_state(saved, comm, fingerprint, "--resume"));
    const Status same_kernels = comm.rank() == 0 ? check_kernels(saved.first(), backend, deterministic) : Status();
    ATOLL_RETURN_IF_ERROR(comm.agree(same_kernels));
    ATOLL_RETURN_IF_ERROR(comm.agree(load_files(saved, store, backend, comm, Content::kState)));
    return std::optional<TrainerState>(state);
}

Result<std::int64_t> load_optimizer(const std::filesystem::path& file, parallel::ParameterStore& store,
                                    kernels::Backend& backend, comm::Comm& comm, const std::string& fingerprint,
                                    const std::string& name) {
    ATOLL_TRY(const auto saved, comm::agreed(comm, SavedState::open(file, optimizer_remedy(name))));
    ATOLL_RETURN_IF_ERROR(comm.agree(check_name(saved.first(), name)));
    ATOLL_TRY(const TrainerState state, check_state(saved, comm, fingerprint, "--optimizer-from"));
    ATOLL_RETURN_IF_ERROR(comm.agree(load_files(saved, store, backend, comm, Content::kOptimizer)));
    return state.updates();
}

Result<std::string> optimizer_digest(const std::filesystem::path& file) {
    ATOLL_TRY(const auto saved, SavedState::open(file, kWithoutOptimizer));
    return digest::sha256(digests_of(saved.first()));
}

}  // namespace atl::checkpoint
