#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/result.h"

namespace atl::data {

// Writes data.safetensors of a data directory while its number of rows is not yet known: input_ids behind a header of
// reserved size, the second tensor ("labels" or "segment_ids") in a file of its own that finish() appends. Memory:
// two small buffers. Not thread-safe.
class DataWriter {
  public:
    // `directory` must exist.
    static Result<DataWriter> create(const std::filesystem::path& directory, std::string second_name,
                                     std::int64_t seq_len);

    // As many elements of both, whole rows.
    Status append(std::span<const std::int32_t> input_ids, std::span<const std::int32_t> second);
    // Completes and syncs data.safetensors; returns its sha256.
    Result<std::string> finish();
    std::int64_t rows() const { return rows_; }

  private:
    struct Spool {
        std::filesystem::path path;
        UniqueFd fd;
        std::vector<std::int32_t> buffer;
        Status append(std::span<const std::int32_t> values);
        Status flush();
    };
    DataWriter() = default;

    std::string second_name_;
    std::int64_t seq_len_ = 0;
    std::int64_t rows_ = 0;
    Spool ids_;
    Spool second_;
};

}  // namespace atl::data
