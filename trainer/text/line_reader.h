#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::text {

// kInvalidArgument unless it is a regular file: inputs are read by position, and more than once. kNotFound.
Status check_input(const std::filesystem::path& path);

// The bytes of a file, decompressed when it is gzip or zstd (told by its first bytes, not by its name). Errors name the
// file. Not thread-safe.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    static Result<std::unique_ptr<ByteSource>> open(const std::filesystem::path& path);

    // Up to out.size() bytes, 0 at the end. A compressed file that stops early is an error.
    virtual Result<std::size_t> read(std::span<char> out) = 0;
    // Bytes of the file itself that have been consumed, for progress.
    virtual std::uint64_t consumed() const = 0;
    // Passes over the next `count` bytes. kInvalidArgument: the file ends before.
    virtual Status skip(std::uint64_t count) = 0;
};

// The start of a line.
struct LinePosition {
    std::size_t file = 0;      // index into the inputs
    std::uint64_t offset = 0;  // bytes of the file's text (decompressed) before it
    std::int64_t line = 1;     // its number
};

// Whole lines of one file.
struct LineBlock {
    std::size_t file = 0;         // index into the inputs
    std::int64_t first_line = 1;  // line number of the first line
    std::string text;             // lines with their newlines; the file's last may lack it
    LinePosition end;             // where the next block begins
    double fraction = 0;          // of all the files' bytes, up to its end, 0 to 1
};

// Cuts files into blocks of whole lines, file by file. Not thread-safe.
class LineReader {
  public:
    static constexpr std::size_t kBlockBytes = 1U << 20;
    static constexpr std::size_t kLineBytesMax = 256U << 20;

    explicit LineReader(std::vector<std::filesystem::path> inputs, std::size_t block_bytes = kBlockBytes);

    // Goes on from `position`, the end of a block of these inputs. Before the first next().
    Status start_at(const LinePosition& position);
    // Nothing after the last block. kInvalidArgument: a line longer than kLineBytesMax, a broken compressed file.
    Result<std::optional<LineBlock>> next();
    // Part of all the files' bytes that has been read, 0 to 1; a block's fraction is that of when it was cut.
    double fraction_read() const;
    const std::vector<std::filesystem::path>& inputs() const { return inputs_; }

  private:
    Status open_source();
    Result<bool> fill();  // more bytes into pending_; false at the end of the file
    LineBlock take(std::size_t size);

    std::vector<std::filesystem::path> inputs_;
    std::size_t block_bytes_;
    std::size_t file_ = 0;
    std::unique_ptr<ByteSource> source_;  // of inputs_[file_], once opened
    std::string pending_;
    std::int64_t line_ = 1;
    std::uint64_t offset_ = 0;  // of the text in pending_
    std::uint64_t bytes_total_ = 0;
    std::uint64_t bytes_before_ = 0;  // of the files that are done
};

// Calls `use(line, number)` for each line that is not blank, without its line end ("\n" or "\r\n"), until it gives
// false.
template <class Use>
void for_each_line(const LineBlock& block, Use&& use) {
    std::int64_t number = block.first_line;
    std::string_view text = block.text;
    for (; !text.empty(); ++number) {
        const auto end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
        if (!use(line, number)) return;
    }
}

}  // namespace atl::text
