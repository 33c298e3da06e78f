#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"

namespace atl::dataset {

// What data.json says; for a bare .safetensors file only rows and seq_len are known.
struct DatasetInfo {
    std::string tokenizer_sha256;       // empty: not known
    std::int64_t tokenizer_reader = 0;  // tokenizer::kReader of the program that made the data; 0: before there was one
    std::string batching;               // "packing", "padding", empty: not known
    std::string text_template;
    std::string fingerprint;  // sha256 of data.safetensors as data.json has it
    std::int64_t documents = 0;
    std::int64_t without_end = 0;  // documents that no end token ends
    std::int64_t rows = 0;
    std::int64_t seq_len = 0;
    std::int64_t tokens = 0;  // without padding, 0: not known
};

// Rows for the model, [rows, seq_len] each, row-major. Labels are not shifted: labels[t] is the token at t or -100, and
// the model predicts labels[t + 1] from position t.
struct Batch {
    std::int64_t rows = 0;
    std::int64_t seq_len = 0;
    std::vector<std::int32_t> input_ids;
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> segment_ids;  // attention stays inside equal ids of a row; empty: a row is one segment
};

// The order in which rows are seen: position p (counted over all ranks, from the start of training) holds row
// row_at(p). Each epoch is a permutation of [0, rows) drawn from (seed, epoch), so that the position alone, a number,
// is the whole state of the data cursor, and the order doesn't depend on the number of ranks. Step s of global batch G
// takes positions [s·G, (s+1)·G); rank r of R takes its part of them.
class RowOrder {
  public:
    RowOrder(std::int64_t rows, bool shuffle, std::uint64_t seed);
    std::int64_t row_at(std::int64_t position) const;
    std::int64_t rows() const { return rows_; }

  private:
    std::int64_t rows_;
    bool shuffle_;
    std::uint64_t seed_;
    int half_bits_;
};

// An open data directory, or a bare .safetensors file. Rows are read when they are asked for and not kept. Immutable:
// any number of threads may read.
//
//   ATOLL_TRY(const auto dataset, Dataset::open("/data/train"));
//   const RowOrder order(dataset.rows(), /*shuffle=*/true, /*seed=*/7);
//   Batch batch;
//   ATOLL_RETURN_IF_ERROR(dataset.read(order, step * 16, 16, batch));  // the 16 sequences of that step
class Dataset {
  public:
    // kInvalidArgument names the file and what is wrong (shape, dtype, a data.json that disagrees with the tensors).
    static Result<Dataset> open(const std::filesystem::path& path);
    ~Dataset();
    Dataset(Dataset&&) noexcept;
    Dataset& operator=(Dataset&&) noexcept;

    // Lets attention cross the documents of a row from now on: batches come without segment_ids, their positions run
    // through the row, and each document's first token is a target of the one before. Padding still doesn't count.
    void join_documents();

    // Whether a row may hold several documents.
    bool has_documents() const;

    const std::filesystem::path& path() const;  // of the file that holds the rows
    const DatasetInfo& info() const;
    std::int64_t rows() const { return info().rows; }
    std::int64_t seq_len() const { return info().seq_len; }

    // Checks rows [row_begin, row_end): ids within [0, vocab_size), labels there or -100. The error names the row. Each
    // rank checks its part of the rows before training begins. on_rows, if given, gets the rows of each piece that is
    // done.
    Status check_tokens(std::int32_t vocab_size, std::int64_t row_begin, std::int64_t row_end,
                        const std::function<void(std::int64_t rows)>& on_rows = {}) const;

    // kConflict: the data was made with another tokenizer than `tokenizer_sha256` (an empty one on either side passes),
    // or by a program that read its files as another `reader` than this one.
    Status check_tokenizer(const std::string& tokenizer_sha256, std::int64_t reader) const;

    // Of data.safetensors or the bare file, which is read whole: what data.json's fingerprint is. on_read, if given,
    // gets the bytes of each piece.
    Result<std::string> sha256(const std::function<void(std::int64_t bytes)>& on_read = {}) const;

    // Reads the rows at positions [begin, begin + count) of the order into `batch`, reusing its memory. An error names
    // the file: it has become shorter, or its disk is broken.
    Status read(const RowOrder& order, std::int64_t begin, std::int64_t count, Batch& batch) const;

  private:
    struct Impl;
    explicit Dataset(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::dataset
