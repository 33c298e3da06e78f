#include "services/aggregation/work/read_ahead.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace atl::aggregation {
namespace {

constexpr std::size_t kBudgetBytes = 64U << 20;
constexpr std::size_t kWindowBytesMin = 64U << 10;
constexpr std::size_t kWindowBytesMax = 8U << 20;

}  // namespace

std::size_t window_bytes_for(std::size_t input_count) {
    return std::clamp(std::bit_floor(kBudgetBytes / std::max<std::size_t>(input_count, 1)), kWindowBytesMin,
                      kWindowBytesMax);
}

bool is_final(ErrorCode code) {
    switch (code) {
        case ErrorCode::kInvalidArgument:
        case ErrorCode::kNotFound:
        case ErrorCode::kConflict:
        case ErrorCode::kPreconditionFailed:
        case ErrorCode::kTooLarge:
            return true;
        default:
            return false;
    }
}

Error answer_of_store(Error error) {
    if (!is_final(error.code)) error.code = ErrorCode::kUnavailable;
    return error;
}

ReadAhead::ReadAhead(store_client::CheckedFile file, std::string model, std::shared_ptr<Window> window,
                     std::size_t window_bytes)
    : file_(std::move(file)), model_(std::move(model)), window_(std::move(window)), window_bytes_(window_bytes) {}

Status ReadAhead::read(std::uint64_t offset, std::span<std::byte> into) const {
    const std::lock_guard lock(window_->mutex);
    while (!into.empty()) {
        ATOLL_RETURN_IF_ERROR(fill(offset));
        const std::size_t skipped = offset - window_->begin;
        const std::size_t count = std::min(into.size(), window_->bytes.size() - skipped);
        std::memcpy(into.data(), window_->bytes.data() + skipped, count);
        offset += count;
        into = into.subspan(count);
    }
    return {};
}

// Makes the window hold the byte at `offset`.
Status ReadAhead::fill(std::uint64_t offset) const {
    const bool held =
        window_->owner == this && offset >= window_->begin && offset - window_->begin < window_->bytes.size();
    if (held) return {};
    if (offset >= file_.size()) return internal_error("a file of an update ends before its tensors do");
    window_->owner = nullptr;
    window_->begin = offset - offset % window_bytes_;
    window_->bytes.resize(std::min<std::uint64_t>(window_bytes_, file_.size() - window_->begin));
    const Status read = named(file_.read(window_->begin, window_->bytes));
    if (!read.ok() && read.error().code == ErrorCode::kInvalidArgument) damaged_ = read;
    ATOLL_RETURN_IF_ERROR(read);
    window_->owner = this;
    return {};
}

Status ReadAhead::check_chunks() const {
    const std::lock_guard lock(window_->mutex);
    return damaged_.ok() ? named(file_.finish()) : damaged_;
}

std::string ReadAhead::damaged_chunk() const {
    const std::lock_guard lock(window_->mutex);
    return file_.damaged_chunk();
}

void ReadAhead::forget_checks() const {
    const std::lock_guard lock(window_->mutex);
    file_.forget();
    damaged_ = {};
}

Status ReadAhead::named(const Status& status) const {
    if (status.ok()) return {};
    Error error = answer_of_store(status.error());
    // The store shows no version before it has all blobs: one that is gone may come back, with a disk. It is tried
    // again as often as a fault of ours.
    if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kInternal;
    error.message = model_ + ": " + error.message;
    return error;
}

}  // namespace atl::aggregation
