#include "services/cli/commands/model_verify.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "shared/digest/digest.h"
#include "shared/store_client/local_file.h"
#include "shared/store_client/remote_file.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using store_client::ClientPool;
using store_client::LocalFile;
using store_client::Manifest;
using store_client::ManifestFile;
using store_client::RemoteFile;

// Where the copy's bytes of a chunk first differ from the store's; none: nowhere.
Result<std::optional<std::uint64_t>> first_difference(const std::string& copy, const RemoteFile& stored,
                                                      std::uint64_t offset) {
    std::string right(copy.size(), '\0');
    ATOLL_RETURN_IF_ERROR(stored.read(offset, std::as_writable_bytes(std::span(right))));
    const auto [ours, theirs] = std::mismatch(copy.begin(), copy.end(), right.begin());
    if (ours == copy.end()) return std::optional<std::uint64_t>();
    return std::optional(offset + static_cast<std::uint64_t>(ours - copy.begin()));
}

// An error that says where the copy of a file goes wrong; success: nowhere.
Status compare_file(const fs::path& path, const ManifestFile& file, const std::shared_ptr<ClientPool>& store) {
    ATOLL_TRY(const LocalFile copy, LocalFile::open(path));
    const std::uint64_t size = std::min(fs::file_size(path), file.size);
    const RemoteFile stored(store, file);
    std::uint64_t offset = 0;
    for (const auto& chunk : file.chunks) {
        if (offset >= size) break;
        ATOLL_TRY(const std::string bytes, copy.read(offset, std::min(chunk.size, size - offset)));
        if (bytes.size() < chunk.size || digest::sha256(bytes) != chunk.sha256) {
            ATOLL_TRY(const auto at, first_difference(bytes, stored, offset));
            if (at)
                return invalid_argument(file.path,
                                        path.string() + " differs from the version at byte " + std::to_string(*at));
        }
        offset += chunk.size;
    }
    if (fs::file_size(path) == file.size) return {};
    return invalid_argument(file.path, path.string() + " is " + std::to_string(fs::file_size(path)) +
                                           " bytes long, the version's is " + std::to_string(file.size) +
                                           "; they are the same up to byte " + std::to_string(size));
}

}  // namespace

std::string tell_store(ClientPool& store, const std::string& blob) {
    const auto looked = store.take()->post_json("/v1/blobs/" + blob + "/check", nlohmann::json::object());
    if (!looked.ok() && looked.error().code == ErrorCode::kPermissionDenied)
        return "; an admin's `atoll model verify` tells the store, which then takes the blob again";
    if (!looked.ok()) return "";
    if (!looked->value("damaged", false)) return "; what the store holds is whole, so try again";
    return "; the store knows now (`atoll model damaged`): push or import the version's directory again to repair it";
}

Status verify_stored(const Manifest& manifest, const store_client::TransferOptions& options) {
    const auto store = std::make_shared<ClientPool>(options.store);
    store_client::Progress progress{0, manifest.size_bytes()};
    std::string buffer;
    for (const ManifestFile& file : manifest.files) {
        const RemoteFile remote(store, file);
        std::uint64_t offset = 0;
        for (const auto& chunk : file.chunks) {
            buffer.resize(chunk.size);
            const Status status = remote.read(offset, std::as_writable_bytes(std::span(buffer)));
            if (!status.ok())
                return Error{status.error().code,
                             file.path + ", bytes " + std::to_string(offset) + " to " +
                                 std::to_string(offset + chunk.size - 1) + ": " + status.error().message +
                                 tell_store(*store, chunk.sha256),
                             file.path};
            offset += chunk.size;
            progress.bytes_done += chunk.size;
            if (options.progress) options.progress(progress);
        }
    }
    return {};
}

Status verify_copy(const fs::path& directory, const Manifest& manifest, const store_client::TransferOptions& options) {
    const Status status = store_client::verify_directory(directory, manifest, 2);
    if (status.ok()) return status;
    const auto store = std::make_shared<ClientPool>(options.store);
    for (const ManifestFile& file : manifest.files)
        if (fs::is_regular_file(directory / file.path))
            ATOLL_RETURN_IF_ERROR(compare_file(directory / file.path, file, store));
    return status;  // a file is missing
}

}  // namespace atl::cli
