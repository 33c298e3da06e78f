#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/result.h"
#include "shared/digest/digest.h"

namespace atl::tokenize {

// Writes data.safetensors of a data directory while its number of rows is not yet known: the first column behind a
// header of reserved size, the others in files of their own ("spools") that finish() appends. What is written in parts
// can be taken up again by another process. Memory: a small buffer a column. Not thread-safe.
class DataWriter {
  public:
    struct Place {
        std::filesystem::path data;   // directory for data.safetensors
        std::filesystem::path spool;  // directory for the other columns until they are appended
    };
    // Opens what is there, or creates it; the directories must exist.
    static Result<DataWriter> open(const Place& place, const std::vector<std::string>& column_names,
                                   std::int64_t seq_len);

    // Before begin(): takes the next part that another process wrote, up to `elements` of each column in all. False,
    // and nothing taken, when the files don't hold it.
    Result<bool> take_part(std::int64_t elements, const std::vector<std::string>& sha256);
    // Drops what lies behind the parts taken. Before the first append().
    Status begin();

    // As many elements of each column, in the order of column_names.
    Status append(std::span<const std::vector<std::int32_t>> columns);
    // Syncs what was appended; the sha256 of what each column got since the last part.
    Result<std::vector<std::string>> end_part();
    // Completes and syncs data.safetensors; returns its sha256. The spools stay.
    Result<std::string> finish();

    std::int64_t elements() const { return columns_[0].elements; }  // of each column
    std::int64_t rows() const { return elements() / seq_len_; }

  private:
    struct Column {
        std::string name;
        std::filesystem::path path;
        UniqueFd fd;
        std::int64_t first_byte = 0;
        std::int64_t elements = 0;
        std::vector<std::int32_t> buffer;
        std::optional<digest::Sha256> part;

        Status open();
        std::int64_t end_byte() const;  // of what has been appended
        Result<bool> holds(std::int64_t count, const std::string& sha256) const;
        Status append(std::span<const std::int32_t> values);
        Status flush();
        Result<std::string> end_part();
    };
    DataWriter() = default;

    std::int64_t seq_len_ = 0;
    std::vector<Column> columns_;
};

}  // namespace atl::tokenize
