#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

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
    Status write_temporary(const std::filesystem::path& path, std::string_view bytes);

    std::filesystem::path root_;
    std::function<int()> write_hook_;
};

}  // namespace atl::store
