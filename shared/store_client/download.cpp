#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "shared/base/parallel.h"
#include "shared/digest/digest.h"
#include "shared/store_client/local_file.h"
#include "shared/store_client/remote_file.h"
#include "shared/store_client/transfer.h"

namespace atl::store_client {
namespace {

namespace fs = std::filesystem;
using json::Json;

Error directory_error(const fs::path& path, const std::string& what, const std::string& why) {
    return {ErrorCode::kInternal, "cannot " + what + " " + path.string() + ": " + why, path.string()};
}

// By digest: all versions of one model have files of the same sizes.
bool holds(const fs::path& directory, const Manifest& manifest) {
    return verify_directory(directory, manifest, /*threads=*/2).ok();
}

Result<bool> is_there_already(const fs::path& directory, const Manifest& manifest) {
    std::error_code error;
    if (!fs::exists(directory, error) || (fs::is_directory(directory, error) && fs::is_empty(directory, error)))
        return false;
    if (fs::is_directory(directory, error) && holds(directory, manifest)) return true;
    return Error{ErrorCode::kConflict, directory.string() + " exists and does not hold this version",
                 directory.string()};
}

// What a download leaves free.
std::uint64_t disk_reserve(std::uint64_t capacity) {
    return std::min(std::uint64_t{1} << 30, capacity / 20);
}

// The directory beside the target where a version grows. Its lock keeps two processes from doing the same work; where
// the file system has no locks both write the same bytes, which is only slower.
class PartialDirectory {
  public:
    static Result<PartialDirectory> open(const fs::path& target, const std::string& digest) {
        const fs::path path =
            target.parent_path() / ("." + target.filename().string() + "." + digest.substr(0, 16) + ".partial");
        std::error_code error;
        fs::create_directories(path, error);
        if (error) return directory_error(path, "create", error.message());
        UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!fd.valid()) return directory_error(path, "open", std::strerror(errno));
        while (::flock(fd.get(), LOCK_EX) != 0 && errno == EINTR) continue;
        return PartialDirectory(path, std::move(fd));
    }

    const fs::path& path() const { return path_; }
    // False when the one who held the lock before has renamed it away.
    bool is_current() const { return fs::exists(path_); }

    Status rename_to(const fs::path& target, const Manifest& manifest) {
        ATOLL_RETURN_IF_ERROR(sync_path(path_));
        if (::rename(path_.c_str(), target.c_str()) != 0) {
            const int error = errno;
            if (!holds(target, manifest)) return directory_error(target, "create", std::strerror(error));
        }
        return sync_path(target.parent_path());
    }

  private:
    PartialDirectory(fs::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    fs::path path_;
    UniqueFd fd_;
};

class Downloader {
  public:
    Downloader(const Manifest& manifest, ClientPool& store, const TransferOptions& options)
        : manifest_(manifest), store_(store), options_(options) {
        progress_.bytes_total = manifest.size_bytes();
    }

    Status run(const fs::path& directory) {
        directory_ = directory;
        ATOLL_RETURN_IF_ERROR(check_space());
        ATOLL_RETURN_IF_ERROR(create_files());
        const std::vector<ChunkPlace> places = chunk_places(manifest_);
        ATOLL_RETURN_IF_ERROR(for_each_parallel(places.size(), options_.connections,
                                                [&](std::size_t i, int) { return make(places[i]); }));
        for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
            ATOLL_TRY(const LocalFile file, open_file(i));
            ATOLL_RETURN_IF_ERROR(file.sync());
        }
        for (const fs::path& sub : directories_) ATOLL_RETURN_IF_ERROR(sync_path(sub));
        return {};
    }

  private:
    // What cannot fit is not begun, and the last bytes of the disk are left to others. What an earlier call has written
    // is there already.
    Status check_space() const {
        std::uint64_t there = 0;
        for (const ManifestFile& entry : manifest_.files) {
            struct stat info{};
            if (::stat((directory_ / entry.path).c_str(), &info) == 0)
                there += std::min(static_cast<std::uint64_t>(info.st_blocks) * 512, entry.size);
        }
        const std::uint64_t needed = manifest_.size_bytes() - there;
        std::error_code error;
        const fs::space_info space = fs::space(directory_, error);
        if (error || needed == 0) return {};
        const std::uint64_t reserve = disk_reserve(space.capacity);
        if (needed <= space.available && space.available - needed >= reserve) return {};
        return Error{ErrorCode::kInsufficientStorage,
                     "the disk of " + directory_.string() + " has " + std::to_string(space.available) +
                         " bytes free, of which " + std::to_string(reserve) + " stay free; the version needs " +
                         std::to_string(needed) + " more",
                     directory_.string()};
    }

    Status create_files() {
        for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
            const fs::path parent = (directory_ / manifest_.files[i].path).parent_path();
            std::error_code error;
            if (fs::create_directories(parent, error)) directories_.push_back(parent);
            if (error) return directory_error(parent, "create", error.message());
            ATOLL_RETURN_IF_ERROR(open_file(i));
        }
        return {};
    }

    // For as long as a chunk takes: a version may have more files than a process may have open.
    Result<LocalFile> open_file(std::size_t i) const {
        return LocalFile::open_for_writing(directory_ / manifest_.files[i].path, manifest_.files[i].size);
    }

    // Keeps a chunk that an earlier call has written, fetches it otherwise.
    Status make(const ChunkPlace& place) {
        ATOLL_TRY(const LocalFile file, open_file(place.file));
        if (!file.is_hole(place.offset, place.chunk.size)) {
            ATOLL_TRY(const std::string written, file.read(place.offset, place.chunk.size));
            if (digest::sha256(written) == place.chunk.sha256) return report(place.chunk.size);
        }
        auto client = store_.take();
        ATOLL_TRY(const auto response, client->call(http::Method::kGet, "/v1/blobs/" + place.chunk.sha256));
        ATOLL_RETURN_IF_ERROR(response.check());
        if (response.body.size() != place.chunk.size || digest::sha256(response.body) != place.chunk.sha256)
            return Error{ErrorCode::kConflict,
                         "the store's bytes of " + manifest_.files[place.file].path + " do not match " +
                             place.chunk.sha256 + after_damage(place.chunk.sha256),
                         manifest_.files[place.file].path};
        ATOLL_RETURN_IF_ERROR(file.write(place.offset, response.body));
        return report(place.chunk.size);
    }

    std::string after_damage(const std::string& sha256) const {
        if (options_.on_damaged) return options_.on_damaged(sha256);
        return "; an admin's `atoll model verify MODEL@" + manifest_digest(manifest_).substr(0, 16) +
               "` tells the store, which then takes these files again from `atoll model push`";
    }

    Status report(std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        progress_.bytes_done += bytes;
        if (options_.progress) options_.progress(progress_);
        return {};
    }

    const Manifest& manifest_;
    ClientPool& store_;
    const TransferOptions& options_;
    fs::path directory_;
    std::vector<fs::path> directories_;  // made here
    std::mutex mutex_;
    Progress progress_;
};

}  // namespace

Result<Manifest> fetch_manifest(http::Client& store, const std::string& digest) {
    if (!digest::is_sha256(digest)) return invalid_argument("digest", "must be 64 lower-case hexadecimal characters");
    ATOLL_TRY(const Json version, store.get_json("/v1/versions/" + digest));
    if (!version.is_object() || !version.contains("manifest"))
        return internal_error("the store's answer has no manifest");
    ATOLL_TRY(Manifest manifest, parse_manifest(version.at("manifest")));
    if (manifest_digest(manifest) != digest) return internal_error("the store's manifest is not the one of " + digest);
    return manifest;
}

Status download_version(const std::string& digest, const fs::path& directory, const TransferOptions& options) {
    ClientPool store(options.store);
    ATOLL_TRY(Manifest manifest, fetch_manifest(*store.take(), digest));
    if (options.leaves_out)
        std::erase_if(manifest.files, [&](const ManifestFile& file) { return options.leaves_out(file.path); });
    fs::path target = fs::absolute(directory).lexically_normal();
    if (!target.has_filename()) target = target.parent_path();  // "models/x/"
    for (;;) {
        ATOLL_TRY(const bool done, is_there_already(target, manifest));
        if (done) return {};
        ATOLL_TRY(PartialDirectory partial, PartialDirectory::open(target, digest));
        if (!partial.is_current()) continue;
        ATOLL_RETURN_IF_ERROR(Downloader(manifest, store, options).run(partial.path()));
        return partial.rename_to(target, manifest);
    }
}

Status verify_directory(const fs::path& directory, const Manifest& manifest, int threads) {
    const std::vector<ChunkPlace> places = chunk_places(manifest);
    for (const ManifestFile& file : manifest.files) {
        std::error_code error;
        if (!fs::exists(directory / file.path, error))
            return invalid_argument(file.path, (directory / file.path).string() + " is not there");
        if (fs::file_size(directory / file.path, error) != file.size || error)
            return invalid_argument(
                file.path, (directory / file.path).string() + " is not " + std::to_string(file.size) + " bytes long");
    }
    return for_each_parallel(places.size(), threads, [&](std::size_t i, int) -> Status {
        const std::string& path = manifest.files[places[i].file].path;
        ATOLL_TRY(const LocalFile file, LocalFile::open(directory / path));
        ATOLL_TRY(const std::string bytes, file.read(places[i].offset, places[i].chunk.size));
        if (digest::sha256(bytes) != places[i].chunk.sha256)
            return invalid_argument(path, (directory / path).string() + " differs from the version at byte " +
                                              std::to_string(places[i].offset));
        return {};
    });
}

}  // namespace atl::store_client
