#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/text/byte_source.h"
#include "trainer/text/csv.h"
#include "trainer/text/input_format.h"
#include "trainer/text/json_array.h"

namespace atl::text {

// The start of a record: a line, an element of an array, a row of a table, a file of text.
struct RecordPosition {
    std::size_t file = 0;      // index into the inputs; their number: the end
    std::uint64_t offset = 0;  // bytes of the file's text (decompressed) before it
    std::int64_t line = 1;     // its number
    std::int64_t record = 1;   // of an array: its number; else not counted
};

// Whole records of one file.
struct RecordBlock {
    std::size_t file = 0;  // index into the inputs
    InputFormat format = InputFormat::kJsonLines;
    std::int64_t first_line = 1;            // line number of the first record
    std::int64_t first_record = 1;          // as RecordPosition has it
    std::shared_ptr<const CsvTable> table;  // of CSV and TSV
    std::string text;                       // records with what separates them; the file's last may lack it
    RecordPosition end;                     // where the next block begins
    double fraction = 0;                    // of all the files' bytes, up to its end, 0 to 1
};

// Cuts files into blocks of whole records, file by file. Memory: a block and what a record needs beyond it, and that of
// ByteSource. Not thread-safe.
class RecordReader {
  public:
    static constexpr std::size_t kBlockBytes = 1U << 20;
    static constexpr std::size_t kRecordBytesMax = 256U << 20;
    struct Limits {
        std::size_t block_bytes = kBlockBytes;
        std::size_t record_bytes_max = kRecordBytesMax;
    };

    explicit RecordReader(std::vector<InputFile> inputs) : RecordReader(std::move(inputs), Limits()) {}
    RecordReader(std::vector<InputFile> inputs, const Limits& limits);

    // Goes on from `position`, the end of a block of these inputs. Before the first next().
    Status start_at(const RecordPosition& position);
    // Nothing after the last block. kInvalidArgument: a record longer than the limit, a broken compressed file, an
    // array that does not end, a table without columns.
    Result<std::optional<RecordBlock>> next();
    // Part of all the files' bytes that has been read, 0 to 1; a block's fraction is that of when it was cut.
    double fraction_read() const;

  private:
    const InputFile& input() const { return inputs_[file_]; }
    Error fault(const std::string& what) const;  // at line_
    Error too_long() const;
    Status open_file();
    Status open_table();
    Status open_array();
    Result<bool> read_more();  // bytes into pending_; false at the end of the file
    void drop(std::size_t size);
    Status scan(std::size_t from);  // what is in pending_ from here on
    Status close_file();
    RecordBlock take(std::size_t size);

    std::vector<InputFile> inputs_;
    Limits limits_;
    std::size_t file_ = 0;
    std::unique_ptr<ByteSource> source_;  // of input(), once opened
    std::string pending_;
    std::size_t whole_ = 0;      // bytes of pending_ that are whole records
    std::int64_t elements_ = 0;  // in those, of an array
    std::uint64_t offset_ = 0;   // of the text in pending_
    std::int64_t line_ = 1;      // of it, too
    std::int64_t record_ = 1;    // likewise
    std::uint64_t bytes_total_ = 0;
    std::uint64_t bytes_before_ = 0;  // of the files that are done
    std::shared_ptr<const CsvTable> table_;
    std::optional<CsvScanner> csv_;
    ArrayScanner array_;
};

}  // namespace atl::text
