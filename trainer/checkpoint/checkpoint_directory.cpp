// The directory of a state: what is in it and what goes.
#include <unistd.h>

#include <functional>
#include <system_error>

#include "shared/base/file.h"
#include "shared/base/out_directory.h"
#include "shared/safetensors/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/state_format.h"

namespace atl::checkpoint {
namespace {

std::filesystem::path finished_file(const std::filesystem::path& out) {
    return checkpoint_file(out).parent_path() / "finished.json";
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
    return directory / "state.safetensors";
}

bool is_checkpoint_file(std::string_view name) {
    return name == "state.safetensors" || name == "finished.json" || is_part_file(name);
}

Status prepare_checkpoint(const std::filesystem::path& out) {
    const std::filesystem::path directory = checkpoint_file(out).parent_path();
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) return file_error(directory, "create", error);
    if (::access(directory.c_str(), W_OK | X_OK) != 0) return file_error(directory, "write in");
    const auto id = read_id(checkpoint_file(out));
    return remove_files(directory, [&](std::string_view name) {
        const bool is_of_another = id.ok() && is_part_file(name) && !is_part_of(name, *id);
        return is_of_another || is_left_over(name, is_checkpoint_file);
    });
}

void unprepare_checkpoint(const std::filesystem::path& out) {
    ::rmdir(checkpoint_file(out).parent_path().c_str());  // fails for a file, and if there is something in it
}

// The first file goes first: without it the others are no state.
Status remove_checkpoint(const std::filesystem::path& out) {
    ATOLL_RETURN_IF_ERROR(remove_file(checkpoint_file(out)));
    return remove_files(checkpoint_file(out).parent_path(), is_checkpoint_file);
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

Status write_finished(const std::filesystem::path& out, const std::string& fingerprint) {
    return write_file_atomic(finished_file(out), fingerprint + "\n");
}

Status finish_checkpoint(const std::filesystem::path& out, const std::string& fingerprint) {
    ATOLL_RETURN_IF_ERROR(write_finished(out, fingerprint));
    ATOLL_RETURN_IF_ERROR(remove_file(checkpoint_file(out)));
    return remove_files(checkpoint_file(out).parent_path(), is_part_file);
}

Result<std::optional<std::string>> read_finished(const std::filesystem::path& out) {
    std::error_code error;
    if (!std::filesystem::exists(finished_file(out), error)) return std::optional<std::string>();
    ATOLL_TRY(std::string fingerprint, read_file(finished_file(out)));
    return std::optional(std::move(fingerprint));
}

}  // namespace atl::checkpoint
