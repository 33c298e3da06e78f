#include "trainer/tokenize/row_builder.h"

#include <algorithm>

#include "trainer/tensor/targets.h"

namespace atl::tokenize {
namespace {

bool has_segments(const RowOptions& options) {
    return options.batching == Batching::kPacking;
}

bool has_labels(const RowOptions& options) {
    return options.batching == Batching::kPadding || options.labels;
}

void append(std::vector<std::int32_t>& column, std::span<const std::int32_t> values) {
    column.insert(column.end(), values.begin(), values.end());
}

}  // namespace

RowBuilder::RowBuilder(const RowOptions& options, const State& state)
    : options_(options), state_(state), columns_(column_names(options).size()) {
    if (has_segments(options)) segment_ids_ = &columns_[1];
    if (has_labels(options)) labels_ = &columns_.back();
}

std::vector<std::string> RowBuilder::column_names(const RowOptions& options) {
    std::vector<std::string> names = {"input_ids"};
    if (has_segments(options)) names.emplace_back("segment_ids");
    if (has_labels(options)) names.emplace_back("labels");
    return names;
}

void RowBuilder::add_document(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
    if (ids.empty()) return;
    if (labels.empty()) labels = ids;
    check(labels.size() == ids.size(), "a document with another number of labels than tokens");
    const std::size_t kept =
        options_.truncate ? std::min(ids.size(), static_cast<std::size_t>(options_.seq_len)) : ids.size();
    if (ids.size() > static_cast<std::size_t>(options_.seq_len)) ++state_.documents_longer;
    state_.tokens_truncated += static_cast<std::int64_t>(ids.size() - kept);
    state_.tokens += static_cast<std::int64_t>(kept);
    ++state_.segment;
    lay_out(ids.first(kept), labels.first(kept));
    if (options_.batching == Batching::kPadding) finish();
}

void RowBuilder::lay_out(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
    while (!ids.empty()) {
        const auto room = static_cast<std::size_t>(options_.seq_len - state_.fill);
        const std::size_t count = std::min(room, ids.size());
        append(columns_[0], ids.first(count));
        if (segment_ids_ != nullptr) segment_ids_->insert(segment_ids_->end(), count, state_.segment);
        if (labels_ != nullptr) append(*labels_, labels.first(count));
        state_.targets += tensor::count_targets(labels.first(count), {});
        ids = ids.subspan(count);
        labels = labels.subspan(count);
        state_.fill += static_cast<std::int64_t>(count);
        if (count < room) continue;
        state_.fill = 0;
        state_.segment = ids.empty() ? 0 : 1;  // the rest of the document is the next row's first
    }
}

void RowBuilder::finish() {
    if (state_.fill > 0) close_row();
}

void RowBuilder::close_row() {
    const std::size_t end = columns_[0].size() + static_cast<std::size_t>(options_.seq_len - state_.fill);
    columns_[0].resize(end, options_.padding_id);
    if (segment_ids_ != nullptr) segment_ids_->resize(end, 0);
    if (labels_ != nullptr) labels_->resize(end, tensor::kIgnoredLabel);
    state_.fill = 0;
    state_.segment = 0;
}

void RowBuilder::clear() {
    for (auto& column : columns_) column.clear();
}

}  // namespace atl::tokenize
