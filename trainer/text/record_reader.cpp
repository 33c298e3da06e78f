#include "trainer/text/record_reader.h"

#include <algorithm>
#include <utility>

namespace atl::text {
namespace {

constexpr std::size_t kHeaderBytesMax = 1U << 20;

std::uint64_t size_of(const std::filesystem::path& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    return error ? 0 : size;
}

}  // namespace

RecordReader::RecordReader(std::vector<InputFile> inputs, const Limits& limits)
    : inputs_(std::move(inputs)), limits_(limits) {
    for (const InputFile& input : inputs_) bytes_total_ += size_of(input.path);
}

Error RecordReader::fault(const std::string& what) const {
    const std::string where = input().path.string() + ":" + std::to_string(line_);
    return invalid_argument(where, where + ": " + what);
}

Error RecordReader::too_long() const {
    const std::string longer = "is longer than " + std::to_string(limits_.record_bytes_max >> 20) + " MiB";
    switch (input().format) {
        case InputFormat::kJsonLines:
        case InputFormat::kLines:
            return fault("the line " + longer);
        case InputFormat::kJsonArray:
            return fault("element " + std::to_string(record_) + " of the array " + longer);
        case InputFormat::kCsv:
        case InputFormat::kTsv:
            return fault("the row " + longer + ": is the quote at the end of a field missing?");
        case InputFormat::kText:
            break;
    }
    return invalid_argument(input().path.string(), input().path.string() + " as one document " + longer +
                                                       ": --input-format lines makes a document of each line");
}

Result<bool> RecordReader::read_more() {
    const std::size_t before = pending_.size();
    pending_.resize(before + limits_.block_bytes);
    auto got = source_->read({pending_.data() + before, limits_.block_bytes});
    pending_.resize(before + (got.ok() ? *got : 0));
    if (!got.ok()) return got.error();
    return *got > 0;
}

void RecordReader::drop(std::size_t size) {
    line_ += std::count(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(size), '\n');
    offset_ += size;
    pending_.erase(0, size);
}

Status RecordReader::open_file() {
    ATOLL_TRY(source_, ByteSource::open(input().path));
    pending_.clear();
    array_ = {};
    whole_ = 0;
    elements_ = 0;
    line_ = 1;
    record_ = 1;
    offset_ = 0;
    while (pending_.size() < kByteOrderMark.size()) {
        ATOLL_TRY(const bool more, read_more());
        if (!more) break;
    }
    if (pending_.starts_with(kByteOrderMark)) drop(kByteOrderMark.size());
    if (input().format == InputFormat::kCsv || input().format == InputFormat::kTsv) return open_table();
    if (input().format == InputFormat::kJsonArray) return open_array();
    return {};
}

// The first line, which names the columns, is no record.
Status RecordReader::open_table() {
    std::size_t begin = 0, end = 0;
    for (bool more = true; more;) {
        begin = std::min(pending_.find_first_not_of("\r\n"), pending_.size());
        bool quoted = false;
        for (end = begin; end < pending_.size(); ++end) {
            if (pending_[end] == '"') quoted = !quoted;
            if (!quoted && (pending_[end] == '\n' || pending_[end] == '\r')) break;
        }
        if (end < pending_.size()) break;
        if (pending_.size() > kHeaderBytesMax)
            return fault("the first line, which names the columns, is longer than 1 MiB");
        ATOLL_TRY(more, read_more());
    }
    drop(begin);
    if (pending_.empty()) return {};  // an empty file has no columns, and no row either
    const bool is_tsv = input().format == InputFormat::kTsv;
    const auto table = read_csv_header(std::string_view(pending_).substr(0, end - begin), is_tsv ? '\t' : '\0');
    if (!table.ok()) return fault(table.error().message);
    table_ = std::make_shared<const CsvTable>(*table);
    end -= begin;
    const std::size_t line_end = pending_.compare(end, 2, "\r\n") == 0 ? 2 : 1;
    drop(std::min(end + line_end, pending_.size()));
    csv_.emplace(table_->delimiter);
    return {};
}

Status RecordReader::open_array() {
    for (bool more = true; more;) {
        const std::size_t begin = pending_.find_first_not_of(kWhiteSpace);
        if (begin != std::string::npos) {
            drop(begin);
            if (pending_[0] != '[') return fault("the file does not begin with the [ of a JSON array");
            drop(1);
            return {};
        }
        drop(pending_.size());
        ATOLL_TRY(more, read_more());
    }
    return fault("there is no JSON array in the file");
}

Status RecordReader::start_at(const RecordPosition& position) {
    check(source_ == nullptr && position.file <= inputs_.size(),
          "RecordReader::start_at: after next(), or no such file");
    for (; file_ < position.file; ++file_) bytes_before_ += size_of(input().path);
    if (position.offset == 0) return {};
    check(file_ < inputs_.size(), "RecordReader::start_at: behind the last file");
    ATOLL_RETURN_IF_ERROR(open_file());
    if (position.offset < offset_) return fault("the place to go on from is before the first row");
    const std::uint64_t count = position.offset - offset_;
    const std::size_t here = static_cast<std::size_t>(std::min<std::uint64_t>(count, pending_.size()));
    pending_.erase(0, here);
    ATOLL_RETURN_IF_ERROR(source_->skip(count - here));
    offset_ = position.offset;
    line_ = position.line;
    record_ = position.record;
    return scan(0);
}

Status RecordReader::scan(std::size_t from) {
    const std::string_view bytes = std::string_view(pending_).substr(from);
    switch (input().format) {
        case InputFormat::kJsonLines:
        case InputFormat::kLines:
            if (const auto newline = bytes.rfind('\n'); newline != std::string_view::npos) whole_ = from + newline + 1;
            return {};
        case InputFormat::kCsv:
        case InputFormat::kTsv:
            if (!csv_) return {};
            if (const std::size_t end = csv_->scan(bytes); end > 0) whole_ = from + end;
            return {};
        case InputFormat::kJsonArray:
            for (std::size_t at = 0; !array_.is_closed();) {
                const std::size_t end = array_.find_end(bytes.substr(at));
                if (end == std::string_view::npos) return {};
                at += end;
                whole_ = from + at;
                ++elements_;
            }
            if (const auto rest = std::string_view(pending_).find_first_not_of(kWhiteSpace, whole_);
                rest != std::string_view::npos) {
                line_ += std::count(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(rest), '\n');
                return fault("something follows the end of the JSON array");
            }
            pending_.resize(whole_);
            return {};
        case InputFormat::kText:
            return {};
    }
    return {};
}

RecordBlock RecordReader::take(std::size_t size) {
    RecordBlock block;
    block.file = file_;
    block.format = input().format;
    block.first_line = line_;
    block.first_record = record_;
    block.table = table_;
    block.fraction = fraction_read();
    std::string rest = pending_.substr(size);
    pending_.resize(size);
    block.text = std::exchange(pending_, std::move(rest));
    line_ += std::count(block.text.begin(), block.text.end(), '\n');
    offset_ += size;
    record_ += std::exchange(elements_, 0);
    whole_ = 0;
    block.end = {file_, offset_, line_, record_};
    return block;
}

Status RecordReader::close_file() {
    if (input().format == InputFormat::kJsonArray && !array_.is_closed()) {
        line_ += std::count(pending_.begin(), pending_.end(), '\n');
        return fault("the file ends within the JSON array: its ] is missing");
    }
    bytes_before_ += source_->consumed();
    source_.reset();
    table_.reset();
    csv_.reset();
    return {};
}

Result<std::optional<RecordBlock>> RecordReader::next() {
    while (file_ < inputs_.size()) {
        if (source_ == nullptr) {
            ATOLL_RETURN_IF_ERROR(open_file());
            ATOLL_RETURN_IF_ERROR(scan(0));
        }
        for (;;) {
            const bool is_at_end = array_.is_closed();  // the end of the last block is that of the file
            if (whole_ > 0 && pending_.size() >= limits_.block_bytes && !is_at_end) return std::optional(take(whole_));
            if (whole_ == 0 && pending_.size() > limits_.record_bytes_max) return too_long();
            const std::size_t before = pending_.size();
            ATOLL_TRY(const bool more, read_more());
            if (!more) break;
            ATOLL_RETURN_IF_ERROR(scan(before));
        }
        std::optional<RecordBlock> last;
        if (!pending_.empty()) last = take(pending_.size());
        ATOLL_RETURN_IF_ERROR(close_file());
        ++file_;
        if (last) {
            last->end = {file_, 0, 1, 1};
            return last;
        }
    }
    return std::optional<RecordBlock>();
}

double RecordReader::fraction_read() const {
    if (bytes_total_ == 0) return 1.0;
    const std::uint64_t read = bytes_before_ + (source_ ? source_->consumed() : 0);
    return std::min(1.0, static_cast<double>(read) / static_cast<double>(bytes_total_));
}

}  // namespace atl::text
