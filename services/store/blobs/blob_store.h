#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::store {

// What uploads leave free of a file system, so that the database and the broker beside them go on: 5 % of it, but at
// least 1 GiB; of a small one, where that is more than a tenth, a tenth.
std::uint64_t default_free_bytes_min(std::uint64_t file_system_bytes);

// Content-addressed files: root/ab/cd/<sha256>, and root/tmp for what is being written. A name becomes visible by
// rename, after its bytes were checked and synced, so whatever can be seen is whole. Thread-safe; blobs never change.
class BlobStore {
  public:
    // Creates the directories and removes what an earlier process left in root/tmp: one process owns a root. What the
    // file system has free does not fall below `free_bytes_min`; nullopt: default_free_bytes_min().
    static Result<std::unique_ptr<BlobStore>> open(const std::filesystem::path& root,
                                                   std::optional<std::uint64_t> free_bytes_min = 0);

    enum class Stored { kNew, kThereAlready };
    // How often the disk's reserve is left: twice by who must leave room for others.
    enum class Reserve : std::uint64_t { kOnce = 1, kTwice = 2 };
    // kInvalidArgument (field "sha256") when the bytes hash to something else; kInsufficientStorage when the disk is
    // full, but for the reserve. Either way nothing becomes visible.
    Result<Stored> put(const std::string& sha256, std::string_view bytes, Reserve reserve = Reserve::kOnce);

    // Puts on the disk every name that can be seen, so that a version may count on it after a power cut. What put() has
    // answered is there already: this is for names that another caller has just made.
    Status sync_names();

    // Makes the blob as young as a new one; false if there is none or it is damaged. Whoever is told that a blob is
    // there counts on it.
    Result<bool> touch(const std::string& sha256);
    // The blobs below this directory of the root ("ab", "ab/cd") that were last stored or touched so long ago or
    // longer.
    std::vector<std::string> older_than(const std::string& directory, std::chrono::seconds age) const;
    // Removes the blob if it is still that old. A reader that has opened it reads on.
    Result<bool> remove_if_older(const std::string& sha256, std::chrono::seconds age);

    // Of the root's file system, in bytes: what is free of it, what uploads leave, and all of it.
    struct Space {
        std::uint64_t free = 0;
        std::uint64_t free_min = 0;
        std::uint64_t total = 0;
    };
    Result<Space> space() const;

    // kNotFound (field: the digest) if there is no such blob.
    Result<std::uint64_t> blob_size(const std::string& sha256) const;
    // At most `count` bytes from `offset`; fewer at the end.
    Result<std::string> read(const std::string& sha256, std::uint64_t offset, std::uint64_t count) const;

    // Reads the whole blob from the disk and compares it with its name; one that differs is damaged until it is stored
    // again or found intact. kNotFound if there is none.
    Result<bool> is_intact(const std::string& sha256);
    // For what an earlier process has found. A damaged blob is missing for who asks, and put() replaces it.
    void mark_damaged(const std::string& sha256);
    bool is_damaged(const std::string& sha256) const;
    std::size_t damaged_count() const;

    // "ab/cd/<sha256>", below the root.
    static std::string relative_path(const std::string& sha256);

    // For tests: called before each write to a blob's file; what it returns, if not 0, is the errno that the write
    // fails with. Set before the store is used.
    void set_write_hook(std::function<int()> hook) { write_hook_ = std::move(hook); }

    // The same for each sync of a directory.
    void set_sync_hook(std::function<int()> hook) { sync_hook_ = std::move(hook); }

  private:
    BlobStore(std::filesystem::path root, std::uint64_t free_bytes_min)
        : root_(std::move(root)), free_bytes_min_(free_bytes_min) {}
    Status write_new(const std::filesystem::path& path, std::string_view bytes, Reserve reserve);
    Status check_space(Reserve reserve) const;
    Result<bool> holds(const std::string& sha256, std::string_view bytes) const;
    void forget_damage(const std::string& sha256);
    Status publish(const std::filesystem::path& temporary, const std::filesystem::path& path);
    Status make_parents(const std::filesystem::path& blob);
    Status write_temporary(const std::filesystem::path& path, std::string_view bytes);
    Status sync_names(const std::filesystem::path& blob);
    Status sync(const std::filesystem::path& directory);

    std::filesystem::path root_;
    std::uint64_t free_bytes_min_;
    std::atomic<std::uint64_t> bytes_in_hand_ = 0;  // of blobs that are being written
    std::mutex ages_;                               // held to look at a blob's age and act on it, and for what follows
    // Directories with names that may not be on the disk yet, each with its newest change.
    std::map<std::filesystem::path, std::uint64_t> unsynced_;
    std::uint64_t changes_ = 0;
    mutable std::mutex damage_;
    std::set<std::string> damaged_;
    std::function<int()> write_hook_;
    std::function<int()> sync_hook_;
};

}  // namespace atl::store
