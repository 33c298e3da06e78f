#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/tokenize.h"

namespace atl::data {

// Lays documents out as rows of seq_len tokens. Each row has input_ids and a second line of numbers: segment ids when
// packing (1 for the row's first document, 2 for the next, …; 0 on the padding that ends the last row), labels when
// padding (the ids, -100 on the padding). Not thread-safe.
class RowBuilder {
  public:
    // `padding_id` fills what no document fills; it is never counted.
    RowBuilder(Batching batching, std::int64_t seq_len, std::int32_t padding_id);

    // Full rows gather in ids() and second() until clear().
    void add_document(std::span<const std::int32_t> ids);
    void finish();  // pads the row begun, if any

    std::span<const std::int32_t> ids() const { return {ids_.data(), complete_}; }
    std::span<const std::int32_t> second() const { return {second_.data(), complete_}; }
    std::int64_t complete_rows() const { return static_cast<std::int64_t>(complete_) / seq_len_; }
    void clear();  // drops the full rows

    std::int64_t tokens() const { return tokens_; }  // laid out, without padding
    std::int64_t documents_truncated() const { return documents_truncated_; }
    std::int64_t tokens_truncated() const { return tokens_truncated_; }

  private:
    void pack(std::span<const std::int32_t> ids);
    void pad(std::span<const std::int32_t> ids);
    void close_row(std::int32_t second);

    Batching batching_;
    std::int64_t seq_len_;
    std::int32_t padding_id_;
    std::vector<std::int32_t> ids_;
    std::vector<std::int32_t> second_;
    std::size_t complete_ = 0;  // elements of full rows; what follows is the row begun
    std::int32_t segment_ = 0;  // of the document last added to the row begun
    std::int64_t tokens_ = 0;
    std::int64_t documents_truncated_ = 0;
    std::int64_t tokens_truncated_ = 0;
};

}  // namespace atl::data
