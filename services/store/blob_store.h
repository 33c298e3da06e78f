#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::store {

// Content-addressed files: root/ab/cd/<sha256>, and root/tmp for what is being written. A name becomes visible by
// rename, after its bytes were checked and synced, so whatever can be seen is whole. Thread-safe; blobs never change.
class BlobStore {
  public:
    // Creates the directories and removes what an earlier process left in root/tmp: one process owns a root.
    static Result<std::unique_ptr<BlobStore>> open(const std::filesystem::path& root);

    enum class Stored { kNew, kThereAlready };
    // kInvalidArgument (field "sha256") when the bytes hash to something else; kResourceExhausted when the disk is
    // full. Either way nothing becomes visible.
    Result<Stored> put(const std::string& sha256, std::string_view bytes);

    // Makes the blob as young as a new one; false if there is none. Whoever is told that a blob is there counts on it.
    Result<bool> touch(const std::string& sha256);
    // The blobs whose name begins with these two digits and that were last stored or touched so long ago or longer.
    std::vector<std::string> older_than(const std::string& first_digits, std::chrono::seconds age) const;
    // Removes the blob if it is still that old. A reader that has opened it reads on.
    Result<bool> remove_if_older(const std::string& sha256, std::chrono::seconds age);

    // kNotFound (field: the digest) if there is no such blob.
    Result<std::uint64_t> size_of(const std::string& sha256) const;
    // At most `count` bytes from `offset`; fewer at the end.
    Result<std::string> read(const std::string& sha256, std::uint64_t offset, std::uint64_t count) const;

    // "ab/cd/<sha256>", below the root.
    static std::string relative_path(const std::string& sha256);

    // For tests: called before each write to a blob's file; what it returns, if not 0, is the errno that the write
    // fails with. Set before the store is used.
    void set_write_hook(std::function<int()> hook) { write_hook_ = std::move(hook); }

  private:
    explicit BlobStore(std::filesystem::path root) : root_(std::move(root)) {}
    Status publish(const std::filesystem::path& temporary, const std::filesystem::path& path);
    Status write_temporary(const std::filesystem::path& path, std::string_view bytes);

    std::filesystem::path root_;
    std::mutex ages_;  // held to look at a blob's age and act on it
    std::function<int()> write_hook_;
};

}  // namespace atl::store
