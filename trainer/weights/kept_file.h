#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/safetensors/file.h"

// A safetensors file that a run leaves at its site for a later one: its metadata say whose it is, and its last tensor
// is the sha256 of the bytes of all before it. Inside trainer/weights only.
namespace atl::weights {

// Reads and checks all of it. `name_key`: of the metadata, that kind's. kNotFound: there is none. kInvalidArgument
// names the file: it is damaged, or has other tensors. kConflict: it has another name than `name`; empty: any will do.
Result<safetensors::File> open_kept_file(const std::filesystem::path& path,
                                         const std::vector<safetensors::TensorInfo>& tensors, const char* name_key,
                                         const std::string& name);
// That sha256.
Result<std::string> kept_sha256(const safetensors::File& file);

// Writes such a file; it appears with finish().
class KeptFileWriter {
  public:
    static Result<KeptFileWriter> create(const std::filesystem::path& path,
                                         std::vector<safetensors::TensorInfo> tensors, const char* name_key,
                                         const std::string& name);
    KeptFileWriter(KeptFileWriter&&) noexcept;
    ~KeptFileWriter();

    Status append(std::span<const std::byte> bytes);  // of the tensors, in their order
    Status finish();

  private:
    struct Impl;
    explicit KeptFileWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::weights
