#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/tokenize/tokenize.h"

namespace atl::tokenize {

struct RowOptions {
    Batching batching = Batching::kPacking;
    std::int64_t seq_len = 0;
    std::int32_t padding_id = 0;  // fills what no document fills; never counted
    bool truncate = false;        // documents to seq_len; else a longer one goes on in the next row
    bool labels = false;          // of the documents are given: packed rows get them too
};

// Lays documents out as rows of seq_len tokens. Each token has a number in each column: input_ids; when packing
// segment_ids (1 for the row's first document, 2 for the next, …; 0 on the padding that ends the last row); when
// padding or when asked for, labels (−100: not counted). Not thread-safe.
class RowBuilder {
  public:
    // Where a builder stands; another one goes on from there.
    struct State {
        std::int64_t fill = 0;     // tokens in the row begun
        std::int32_t segment = 0;  // of the document last added to it
        std::int64_t tokens = 0;   // laid out so far, without padding
        std::int64_t targets = 0;  // tokens of those that count in the loss and have one of their document before them
        std::int64_t documents_longer = 0;  // than a row
        std::int64_t tokens_truncated = 0;
    };

    explicit RowBuilder(const RowOptions& options) : RowBuilder(options, State()) {}
    RowBuilder(const RowOptions& options, const State& state);

    // `labels`: as many as ids, or none: all count. What is laid out gathers in columns() until clear().
    void add_document(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);
    void finish();  // pads the row begun, if any

    static std::vector<std::string> column_names(const RowOptions& options);
    // In the order of column_names(), all of one length.
    std::span<const std::vector<std::int32_t>> columns() const { return columns_; }
    void clear();  // empties the columns

    const State& state() const { return state_; }

  private:
    void lay_out(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);
    void close_row();

    RowOptions options_;
    State state_;
    std::vector<std::vector<std::int32_t>> columns_;
    std::vector<std::int32_t>* segment_ids_ = nullptr;
    std::vector<std::int32_t>* labels_ = nullptr;
};

}  // namespace atl::tokenize
