// The directory of a state: what is in it and what goes.
#include <unistd.h>

#include <functional>
#include <system_error>

#include "shared/base/file.h"
#include "shared/base/file_lock.h"
#include "shared/base/out_directory.h"
#include "shared/log/warn.h"
#include "shared/safetensors/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/state_format.h"
#include "trainer/weights/control_variate.h"
#include "trainer/weights/rounding_error.h"

namespace atl::checkpoint {
namespace {

constexpr std::string_view kStateFile = "state.safetensors";
constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
constexpr std::string_view kFinishedFile = "finished.json";

std::filesystem::path finished_file(const std::filesystem::path& out) {
    return checkpoint_file(out).parent_path() / kFinishedFile;
}

Status remove_file(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::remove(path, error);
    return error ? file_error(path, "remove", error) : Status();
}

Status remove_files(const std::filesystem::path& directory, const std::function<bool(std::string_view)>& goes) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
        if (!goes(entry.path().filename().string())) continue;
        ATOLL_RETURN_IF_ERROR(remove_file(entry.path()));
    }
    return {};  // or there is no such directory
}

// The id of the state that is there; empty: there is none. Of one that cannot be read nothing is known.
Result<std::string> read_id(const std::filesystem::path& file) {
    const auto state = safetensors::File::open(file);
    if (!state.ok() && state.error().code == ErrorCode::kNotFound) return std::string();
    if (!state.ok()) return state.error();
    const auto found = state->header().metadata.find("state");
    return found == state->header().metadata.end() ? std::string() : found->second;
}

}  // namespace

std::filesystem::path checkpoint_file(const std::filesystem::path& out) {
    std::filesystem::path directory = (out.has_filename() ? out : out.parent_path());
    directory += ".state";
    return directory / kStateFile;
}

std::filesystem::path optimizer_file(const std::filesystem::path& out) {
    return checkpoint_file(out).parent_path() / kOptimizerFile;
}

std::filesystem::path control_variate_file(const std::filesystem::path& out) {
    return checkpoint_file(out).parent_path() / delta::kControlVariateFile;
}

bool is_checkpoint_file(std::string_view name) {
    return name == kStateFile || name == kOptimizerFile || name == kFinishedFile ||
           name == weights::kRoundingErrorFile || name == delta::kControlVariateFile ||
           is_part_file(name, kStateFile) || is_part_file(name, kOptimizerFile);
}

Result<StateDirectory> StateDirectory::open(const std::filesystem::path& out) {
    const std::filesystem::path path = checkpoint_file(out).parent_path();
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return file_error(path, "create", error);
    if (::access(path.c_str(), W_OK | X_OK) != 0) return file_error(path, "write in");
    ATOLL_TRY(UniqueFd lock, lock_directory(path));
    StateDirectory directory(path, std::move(lock));
    for (const auto& file : {checkpoint_file(out), optimizer_file(out)}) {
        const auto id = read_id(file);
        ATOLL_RETURN_IF_ERROR(remove_files(path, [&](std::string_view name) {
            return id.ok() && is_part_file(name, file) && !is_part_of(name, file, *id);
        }));
    }
    ATOLL_RETURN_IF_ERROR(
        remove_files(path, [](std::string_view name) { return is_left_over(name, is_checkpoint_file); }));
    return directory;
}

StateDirectory::StateDirectory(StateDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::move(other.lock_)) {}

StateDirectory::~StateDirectory() {
    // rmdir() fails if there is something in it.
    if (lock_.valid() && leads_to(path_, lock_)) ::rmdir(path_.c_str());
}

Status StateDirectory::restore() {
    if (leads_to(path_, lock_)) return {};
    std::error_code error;
    std::filesystem::create_directory(path_, error);  // fails without what it was in
    if (error) return file_error(path_, "create", error);
    ATOLL_TRY(UniqueFd lock, lock_directory(path_));
    if (!std::filesystem::is_empty(path_, error) || error)
        return conflict(path_.string() + " is another directory than when the run began, with something in it",
                        path_.string());
    lock_ = std::move(lock);
    log::warn(path_.string() + " was removed or renamed meanwhile: made again");
    return {};
}

std::optional<std::filesystem::path> StateDirectory::current_path() const {
    std::error_code error;
    const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(lock_.get()), error);
    return !error && leads_to(path, lock_) ? std::optional(path) : std::nullopt;
}

// The first files go first: without them the others are nothing.
Status StateDirectory::remove_state() const {
    ATOLL_RETURN_IF_ERROR(remove_file(path_ / kStateFile));
    ATOLL_RETURN_IF_ERROR(remove_file(path_ / kOptimizerFile));
    return remove_files(path_, is_checkpoint_file);
}

std::uint64_t bytes_on_disk(const std::filesystem::path& out) {
    std::uint64_t bytes = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint_file(out).parent_path(), error)) {
        const auto size = entry.file_size(error);
        if (!error) bytes += size;
    }
    return bytes;
}

Status StateDirectory::write_finished(const std::string& fingerprint) const {
    return write_file_atomic(path_ / kFinishedFile, fingerprint + "\n");
}

Status StateDirectory::finish(const std::string& fingerprint) const {
    ATOLL_RETURN_IF_ERROR(write_finished(fingerprint));
    ATOLL_RETURN_IF_ERROR(remove_file(path_ / kStateFile));
    return remove_files(path_, [](std::string_view name) { return is_part_file(name, kStateFile); });
}

Result<std::optional<std::string>> read_finished(const std::filesystem::path& out) {
    std::error_code error;
    if (!std::filesystem::exists(finished_file(out), error)) return std::optional<std::string>();
    ATOLL_TRY(std::string fingerprint, read_file(finished_file(out)));
    return std::optional(std::move(fingerprint));
}

}  // namespace atl::checkpoint
