#include "trainer/data/row_builder.h"

#include <algorithm>

#include "trainer/data/dataset.h"

namespace atl::data {

RowBuilder::RowBuilder(Batching batching, std::int64_t seq_len, std::int32_t padding_id)
    : batching_(batching), seq_len_(seq_len), padding_id_(padding_id) {}

void RowBuilder::add_document(std::span<const std::int32_t> ids) {
    if (ids.empty()) return;
    batching_ == Batching::kPacking ? pack(ids) : pad(ids);
}

void RowBuilder::pack(std::span<const std::int32_t> ids) {
    ++segment_;
    tokens_ += static_cast<std::int64_t>(ids.size());
    while (!ids.empty()) {
        const std::size_t room = static_cast<std::size_t>(seq_len_) - (ids_.size() - complete_);
        const std::size_t count = std::min(room, ids.size());
        ids_.insert(ids_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
        second_.insert(second_.end(), count, segment_);
        ids = ids.subspan(count);
        if (count < room) continue;
        complete_ = ids_.size();
        segment_ = ids.empty() ? 0 : 1;  // the rest of the document is the next row's first
    }
}

void RowBuilder::pad(std::span<const std::int32_t> ids) {
    const std::size_t count = std::min(ids.size(), static_cast<std::size_t>(seq_len_));
    if (count < ids.size()) {
        ++documents_truncated_;
        tokens_truncated_ += static_cast<std::int64_t>(ids.size() - count);
    }
    tokens_ += static_cast<std::int64_t>(count);
    ids_.insert(ids_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    second_.insert(second_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    close_row(kIgnoredLabel);
}

void RowBuilder::close_row(std::int32_t second) {
    const std::size_t end = complete_ + static_cast<std::size_t>(seq_len_);
    ids_.resize(end, padding_id_);
    second_.resize(end, second);
    complete_ = end;
    segment_ = 0;
}

void RowBuilder::finish() {
    if (ids_.size() > complete_) close_row(0);
}

void RowBuilder::clear() {
    const auto count = static_cast<std::ptrdiff_t>(complete_);
    ids_.erase(ids_.begin(), ids_.begin() + count);
    second_.erase(second_.begin(), second_.begin() + count);
    complete_ = 0;
}

}  // namespace atl::data
