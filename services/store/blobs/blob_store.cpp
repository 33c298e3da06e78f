#include "services/store/blobs/blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "shared/base/file.h"
#include "shared/base/id.h"
#include "shared/base/on_exit.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kReadBytes = 1U << 20;
constexpr std::uint64_t kFreeFilesMin = 10'000;  // databases and brokers on the same disk make files, too

// The path is for the log; a client learns only what went wrong.
Error disk_error(const std::string& what) {
    if (errno == ENOSPC || errno == EDQUOT)
        return {ErrorCode::kInsufficientStorage, "the store's disk is full: " + what + " failed", {}};
    return internal_error(what + " failed: " + std::strerror(errno));
}

bool is_older(const fs::path& path, std::chrono::seconds age) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) return false;
    const auto since = std::chrono::system_clock::now().time_since_epoch() - std::chrono::seconds(info.st_mtim.tv_sec);
    return since >= age;
}

}  // namespace

std::uint64_t default_free_bytes_min(std::uint64_t file_system_bytes) {
    constexpr std::uint64_t kReserveBytes = 1U << 30;
    return std::max(file_system_bytes / 20, std::min(kReserveBytes, file_system_bytes / 10));
}

Result<std::unique_ptr<BlobStore>> BlobStore::open(const fs::path& root, std::optional<std::uint64_t> free_bytes_min) {
    std::error_code error;
    fs::create_directories(root / "tmp", error);
    if (error)
        return Error{ErrorCode::kInvalidArgument, "cannot create " + root.string() + ": " + error.message(),
                     "store.root"};
    for (const auto& orphan : fs::directory_iterator(root / "tmp", error)) fs::remove(orphan.path(), error);
    // A process that was killed between naming a blob and syncing the name leaves nobody else to do it.
    const UniqueFd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || ::syncfs(fd.get()) != 0) return disk_error("syncing the blobs");
    struct statvfs info{};
    if (!free_bytes_min && ::statvfs(root.c_str(), &info) != 0) return disk_error("looking at the disk");
    return std::unique_ptr<BlobStore>(
        new BlobStore(root, free_bytes_min.value_or(default_free_bytes_min(info.f_blocks * info.f_frsize))));
}

std::string BlobStore::relative_path(const std::string& sha256) {
    check(digest::is_sha256(sha256), "a blob's name must be a sha256");
    return sha256.substr(0, 2) + "/" + sha256.substr(2, 2) + "/" + sha256;
}

Result<BlobStore::Stored> BlobStore::put(const std::string& sha256, std::string_view bytes, Reserve reserve) {
    const std::string actual = digest::sha256(bytes);
    if (actual != sha256) return invalid_argument("sha256", "the body's sha256 is " + actual + ", not " + sha256);
    const fs::path path = root_ / relative_path(sha256);
    ATOLL_TRY(const bool is_whole, holds(sha256, bytes));
    if (is_whole) {
        forget_damage(sha256);
        ATOLL_TRY(const bool is_there, touch(sha256));
        // Another writer may have named it a moment ago.
        if (is_there) ATOLL_RETURN_IF_ERROR(sync_names(path));
        if (is_there) return Stored::kThereAlready;
    }
    {
        bytes_in_hand_ += bytes.size();
        const OnExit subtract([&] { bytes_in_hand_ -= bytes.size(); });
        ATOLL_RETURN_IF_ERROR(write_new(path, bytes, reserve));
    }
    forget_damage(sha256);
    ATOLL_RETURN_IF_ERROR(sync_names(path));
    return Stored::kNew;
}

// Whether the bytes on the disk are these. Who sends a blob that is there, but has rotted, heals it.
Result<bool> BlobStore::holds(const std::string& sha256, std::string_view bytes) const {
    const auto size = blob_size(sha256);
    if (!size.ok() || *size != bytes.size()) return false;
    for (std::uint64_t at = 0; at < bytes.size(); at += kReadBytes) {
        const auto piece = read(sha256, at, kReadBytes);
        if (!piece.ok() || *piece != bytes.substr(at, kReadBytes)) return false;
    }
    return true;
}

Status BlobStore::write_new(const fs::path& path, std::string_view bytes, Reserve reserve) {
    ATOLL_RETURN_IF_ERROR(check_space(reserve));
    const fs::path temporary = root_ / "tmp" / new_id();
    OnExit remove([&] { ::unlink(temporary.c_str()); });
    ATOLL_RETURN_IF_ERROR(write_temporary(temporary, bytes));
    ATOLL_RETURN_IF_ERROR(make_parents(path));
    ATOLL_RETURN_IF_ERROR(publish(temporary, path));
    remove.disarm();
    return {};
}

// With what others are writing just now: together they leave the reserve.
Status BlobStore::check_space(Reserve reserve) const {
    struct statvfs info{};
    if (::statvfs(root_.c_str(), &info) != 0) return disk_error("looking at the disk");
    const std::uint64_t available = info.f_bavail * info.f_frsize;
    if (info.f_files != 0 && info.f_favail < kFreeFilesMin)  // 0: the file system has as many as it needs
        return Error{ErrorCode::kInsufficientStorage,
                     "the store's disk can hold only " + std::to_string(info.f_favail) +
                         " files more; remove what nobody needs (atoll model prune)",
                     {}};
    if (available >= static_cast<std::uint64_t>(reserve) * free_bytes_min_ + bytes_in_hand_) return {};
    return Error{ErrorCode::kInsufficientStorage,
                 "the store's disk has " + human_bytes(available) + " free, of which store.free_bytes_min keeps " +
                     human_bytes(free_bytes_min_) +
                     (reserve == Reserve::kTwice ? ", and as much again for the updates of jobs" : "") +
                     "; remove what nobody needs (atoll model prune)",
                 {}};
}

Result<BlobStore::Space> BlobStore::space() const {
    struct statvfs info{};
    if (::statvfs(root_.c_str(), &info) != 0) return disk_error("looking at the disk");
    return Space{
        .free = info.f_bavail * info.f_frsize, .free_min = free_bytes_min_, .total = info.f_blocks * info.f_frsize};
}

// Two writers of one blob rename the same bytes: whoever is last changes nothing.
Status BlobStore::publish(const fs::path& temporary, const fs::path& path) {
    const std::lock_guard lock(ages_);
    if (::rename(temporary.c_str(), path.c_str()) != 0) return disk_error("naming a blob");
    unsynced_[path.parent_path()] = ++changes_;
    return {};
}

// Creates root/ab/cd. A synced blob below a directory that a power cut takes away would be lost with it.
Status BlobStore::make_parents(const fs::path& blob) {
    const fs::path second = blob.parent_path();
    const fs::path first = second.parent_path();
    const std::lock_guard lock(ages_);
    for (const auto& [directory, parent] : {std::pair(first, root_), std::pair(second, first)}) {
        if (::mkdir(directory.c_str(), 0755) == 0)
            unsynced_[parent] = ++changes_;
        else if (errno != EEXIST)
            return disk_error("creating a blob's directory");
    }
    return {};
}

Status BlobStore::sync_names(const fs::path& blob) {
    const fs::path second = blob.parent_path();
    for (const fs::path& directory : {root_, second.parent_path(), second}) ATOLL_RETURN_IF_ERROR(sync(directory));
    return {};
}

Status BlobStore::sync_names() {
    std::map<fs::path, std::uint64_t> unsynced;
    {
        const std::lock_guard lock(ages_);
        unsynced = unsynced_;
    }
    for (const auto& [directory, change] : unsynced) ATOLL_RETURN_IF_ERROR(sync(directory));
    return {};
}

// Nothing to do if all its names are on the disk. A name that is made meanwhile stays to be synced.
Status BlobStore::sync(const fs::path& directory) {
    std::uint64_t change = 0;
    {
        const std::lock_guard lock(ages_);
        const auto found = unsynced_.find(directory);
        if (found == unsynced_.end()) return {};
        change = found->second;
    }
    const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const int injected = sync_hook_ ? sync_hook_() : 0;
    if (injected != 0) errno = injected;
    if (!fd.valid() || injected != 0 || ::fsync(fd.get()) != 0) return disk_error("syncing a blob's directory");
    const std::lock_guard lock(ages_);
    const auto found = unsynced_.find(directory);
    if (found != unsynced_.end() && found->second == change) unsynced_.erase(found);
    return {};
}

Result<bool> BlobStore::is_intact(const std::string& sha256) {
    const auto size = blob_size(sha256);
    if (!size.ok()) forget_damage(sha256);
    ATOLL_RETURN_IF_ERROR(size);
    {
        // From the disk, not from memory; and what others read often stays there.
        const UniqueFd fd(::open((root_ / relative_path(sha256)).c_str(), O_RDONLY | O_CLOEXEC));
        if (fd.valid()) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
    digest::Sha256 hash;
    bool is_readable = true;
    for (std::uint64_t at = 0; at < *size && is_readable; at += kReadBytes) {
        const auto piece = read(sha256, at, kReadBytes);
        if (!piece.ok() && piece.error().code == ErrorCode::kNotFound) return piece.error();
        is_readable = piece.ok();
        if (is_readable) hash.update(*piece);
    }
    const bool is_intact = is_readable && hash.finish() == sha256;
    if (is_intact)
        forget_damage(sha256);
    else
        mark_damaged(sha256);
    return is_intact;
}

void BlobStore::mark_damaged(const std::string& sha256) {
    const std::lock_guard lock(damage_);
    damaged_.insert(sha256);
}

void BlobStore::forget_damage(const std::string& sha256) {
    const std::lock_guard lock(damage_);
    damaged_.erase(sha256);
}

bool BlobStore::is_damaged(const std::string& sha256) const {
    const std::lock_guard lock(damage_);
    return damaged_.contains(sha256);
}

std::size_t BlobStore::damaged_count() const {
    const std::lock_guard lock(damage_);
    return damaged_.size();
}

Result<bool> BlobStore::touch(const std::string& sha256) {
    if (is_damaged(sha256)) return false;
    const std::lock_guard lock(ages_);
    if (::utimensat(AT_FDCWD, (root_ / relative_path(sha256)).c_str(), nullptr, 0) == 0) return true;
    if (errno == ENOENT) return false;
    return disk_error("touching a blob");
}

std::vector<std::string> BlobStore::older_than(const std::string& directory, std::chrono::seconds age) const {
    std::vector<std::string> names;
    std::error_code error;  // one that cannot be read holds nothing to name
    for (fs::recursive_directory_iterator entry(root_ / directory, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename();
        if (digest::is_sha256(name) && is_older(entry->path(), age)) names.push_back(name);
    }
    return names;
}

Result<bool> BlobStore::remove_if_older(const std::string& sha256, std::chrono::seconds age) {
    const fs::path path = root_ / relative_path(sha256);
    const std::lock_guard lock(ages_);
    if (!is_older(path, age)) return false;
    if (::unlink(path.c_str()) != 0) return disk_error("removing a blob");
    return true;
}

Status BlobStore::write_temporary(const fs::path& path, std::string_view bytes) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd.valid()) return disk_error("creating a blob");
    while (!bytes.empty()) {
        const int injected = write_hook_ ? write_hook_() : 0;
        const ssize_t written = injected != 0 ? -1 : ::write(fd.get(), bytes.data(), bytes.size());
        if (injected != 0) errno = injected;
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return disk_error("writing a blob");
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::fsync(fd.get()) != 0) return disk_error("syncing a blob");
    return {};
}

Result<std::uint64_t> BlobStore::blob_size(const std::string& sha256) const {
    struct stat info{};
    if (::stat((root_ / relative_path(sha256)).c_str(), &info) == 0) return static_cast<std::uint64_t>(info.st_size);
    if (errno == ENOENT) return not_found("there is no blob " + sha256, sha256);
    return disk_error("looking for a blob");
}

Result<std::string> BlobStore::read(const std::string& sha256, std::uint64_t offset, std::uint64_t count) const {
    ATOLL_TRY(const std::uint64_t size, blob_size(sha256));
    const UniqueFd fd(::open((root_ / relative_path(sha256)).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return disk_error("opening a blob");
    std::string bytes(offset < size ? std::min(count, size - offset) : 0, '\0');
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t got =
            ::pread(fd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return disk_error("reading a blob");
        if (got == 0) return internal_error("blob " + sha256 + " became shorter");
        done += static_cast<std::size_t>(got);
    }
    return bytes;
}

}  // namespace atl::store
