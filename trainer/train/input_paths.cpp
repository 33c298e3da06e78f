#include "trainer/train/input_paths.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/train/output.h"
#include "trainer/weights/adapter.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelConfig = "config.json";

bool holds(const fs::path& directory, const char* file) {
    std::error_code error;
    return fs::exists(directory / file, error);
}

bool is_directory_path(const std::string& path) {
    std::error_code error;
    return fs::is_directory(path, error);
}

// Refuses what a training is still to write, which may not be there yet.
Status check_written(const std::string& path, OutputKind wanted, const char* flag) {
    const fs::path state = checkpoint::checkpoint_file(path);
    std::error_code error;
    if (path.empty() || !fs::exists(state, error)) return {};
    return invalid_argument(flag, "'" + path + "' holds " + (wanted == OutputKind::kModel ? "no model" : "no adapter") +
                                      " yet: `train --resume` goes on from '" + state.parent_path().string() + "'");
}

Status check_readable(const std::string& path, const char* flag) {
    if (path.empty()) return invalid_argument(flag, "is required");
    const int mode = is_directory_path(path) ? R_OK | X_OK : R_OK;
    if (::access(path.c_str(), mode) == 0) return {};
    if (errno == ENOENT) return not_found("there is no '" + path + "'", flag);
    return invalid_argument(flag, "'" + path + "' cannot be read: " + std::strerror(errno));
}

Status check_directory(const std::string& path, OutputKind wanted, const char* flag) {
    if (std::error_code error; !fs::exists(path, error)) ATOLL_RETURN_IF_ERROR(check_written(path, wanted, flag));
    ATOLL_RETURN_IF_ERROR(check_readable(path, flag));
    if (is_directory_path(path)) return {};
    return invalid_argument(flag, "'" + path + "' is a file; give the directory that holds it");
}

// A directory of another kind than is wanted, or one that a training is still to write to.
Status check_kind(const std::string& path, OutputKind wanted, const char* flag) {
    const auto kind = recognize_output(path);
    if (kind == OutputKind::kCheckpoint)
        return invalid_argument(
            flag, "'" + path + "' is " + to_string(*kind) + ": give that training's --out, the name without .state");
    if (kind && kind != wanted)
        return invalid_argument(
            flag, "'" + path + "' holds " + to_string(*kind) + ": give a directory with " + to_string(wanted));
    return check_written(path, wanted, flag);
}

}  // namespace

Status check_model_path(const std::string& path, const char* flag) {
    ATOLL_RETURN_IF_ERROR(check_directory(path, OutputKind::kModel, flag));
    if (holds(path, kModelConfig)) return {};
    if (holds(path, weights::kAdapterConfig)) {
        return invalid_argument(
            flag, "'" + path + "' is an adapter: give the model that it was trained on, and --adapter '" + path + "'");
    }
    return check_kind(path, OutputKind::kModel, flag);
}

Status check_adapter_path(const std::string& path, const char* flag) {
    ATOLL_RETURN_IF_ERROR(check_directory(path, OutputKind::kAdapter, flag));
    if (holds(path, weights::kAdapterConfig)) return {};
    ATOLL_RETURN_IF_ERROR(check_kind(path, OutputKind::kAdapter, flag));
    return invalid_argument(flag, "'" + path + "' is no adapter: it holds no " + weights::kAdapterConfig);
}

Status check_data_path(const std::string& path, const char* flag) {
    ATOLL_RETURN_IF_ERROR(check_readable(path, flag));
    if (!is_directory_path(path) || holds(path, "data.json")) return {};
    return invalid_argument(flag, "'" + path + "' holds no data.json: `tokenize` makes a data directory");
}

}  // namespace atl::train
