#include "trainer/text/line_reader.h"

#include <algorithm>
#include <utility>

namespace atl::text {

LineReader::LineReader(std::vector<std::filesystem::path> inputs, std::size_t block_bytes)
    : inputs_(std::move(inputs)), block_bytes_(block_bytes) {
    for (const auto& input : inputs_) {
        std::error_code error;
        const auto size = std::filesystem::file_size(input, error);
        if (!error) bytes_total_ += size;
    }
}

Result<bool> LineReader::fill() {
    const std::size_t before = pending_.size();
    pending_.resize(before + block_bytes_);
    auto got = source_->read({pending_.data() + before, block_bytes_});
    pending_.resize(before + (got.ok() ? *got : 0));
    if (!got.ok()) return got.error();
    return *got > 0;
}

LineBlock LineReader::take(std::size_t size) {
    LineBlock block{file_, line_, {}, {}, fraction_read()};
    std::string rest = pending_.substr(size);
    pending_.resize(size);
    block.text = std::exchange(pending_, std::move(rest));
    line_ += std::count(block.text.begin(), block.text.end(), '\n');
    offset_ += size;
    block.end = {file_, offset_, line_};
    return block;
}

Status LineReader::open_source() {
    ATOLL_TRY(source_, ByteSource::open(inputs_[file_]));
    line_ = 1;
    offset_ = 0;
    return {};
}

Status LineReader::start_at(const LinePosition& position) {
    check(source_ == nullptr && position.file < inputs_.size(), "LineReader::start_at: after next(), or no such file");
    for (; file_ < position.file; ++file_) {
        std::error_code error;
        const auto size = std::filesystem::file_size(inputs_[file_], error);
        if (!error) bytes_before_ += size;
    }
    ATOLL_RETURN_IF_ERROR(open_source());
    ATOLL_RETURN_IF_ERROR(source_->skip(position.offset));
    offset_ = position.offset;
    line_ = position.line;
    return {};
}

Result<std::optional<LineBlock>> LineReader::next() {
    while (file_ < inputs_.size()) {
        if (source_ == nullptr) ATOLL_RETURN_IF_ERROR(open_source());
        std::size_t searched = 0;  // no newline before here
        for (;;) {
            if (pending_.size() - searched >= block_bytes_) {
                const auto newline = std::string_view(pending_).substr(searched).rfind('\n');
                if (newline != std::string_view::npos) return std::optional(take(searched + newline + 1));
                searched = pending_.size();
            }
            if (pending_.size() > kLineBytesMax)
                return invalid_argument(inputs_[file_].string(), inputs_[file_].string() + ":" + std::to_string(line_) +
                                                                     ": the line is longer than 256 MiB");
            ATOLL_TRY(const bool more, fill());
            if (!more) break;
        }
        bytes_before_ += source_->consumed();
        source_.reset();
        const std::size_t size = pending_.size();
        std::optional<LineBlock> last;
        if (size > 0) last = take(size);
        ++file_;
        if (last) return last;
    }
    return std::optional<LineBlock>();
}

double LineReader::fraction_read() const {
    if (bytes_total_ == 0) return 1.0;
    const std::uint64_t read = bytes_before_ + (source_ ? source_->consumed() : 0);
    return std::min(1.0, static_cast<double>(read) / static_cast<double>(bytes_total_));
}

}  // namespace atl::text
