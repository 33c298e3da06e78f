#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/importer/state_dict.h"
#include "trainer/importer/torch_zip.h"

namespace atl::importer {

// An error about a file, which it names.
Error in_file(const std::filesystem::path& path, const std::string& what);

// A file that torch.save wrote of a dictionary of tensors, mapped: a tensor's bytes are read where they are.
class TorchFile {
  public:
    // The error names the file, and in it the member, the byte, and the class or opcode that is refused.
    static Result<TorchFile> open(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return path_; }
    const std::vector<StoredTensor>& tensors() const { return tensors_; }
    const StoredTensor* find(std::string_view name) const;
    std::span<const std::byte> bytes(const StoredTensor& tensor) const;
    // Gives back the memory of the tensor's pages; they are read from the file again if need be.
    void forget(const StoredTensor& tensor) const;

  private:
    std::filesystem::path path_;
    StoredZip zip_;
    std::string root_;  // the folder of all members, "pytorch_model/"
    std::vector<StoredTensor> tensors_;
};

}  // namespace atl::importer
