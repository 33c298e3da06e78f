#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "shared/base/result.h"
#include "shared/prompt/template.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/record_reader.h"
#include "trainer/tokenize/tokenize.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenize {

// The documents of one block, encoded.
struct EncodedBlock {
    std::vector<std::int32_t> ids;      // of all documents, one after another
    std::vector<std::int32_t> labels;   // as many, −100 where the loss does not count; empty: all count
    std::vector<std::int64_t> lengths;  // ids of each document
    std::int64_t others = 0;            // documents of the other split
    std::int64_t bytes = 0;             // of the documents' text
    std::int64_t line_bytes = 0;        // of the block
    text::RecordPosition end;           // where the next block begins
    double fraction = 0;                // of all the input's bytes, up to its end
};

// What to do with each row.
struct EncodeJob {
    const tokenizer::Tokenizer* tokenizer = nullptr;
    const prompt::Template* text_template = nullptr;
    std::vector<text::InputFile> inputs;  // for messages
    Split split = Split::kAll;
    int validation_percent = 0;
    LossOn loss_on = LossOn::kAll;                      // anything else: labels are given
    const text::ChatTemplate* chat_template = nullptr;  // rows are conversations; else by text_template
};

// The documents of the rows of one block; the error names the first bad row as file:line. A pure function.
Result<EncodedBlock> encode_block(const EncodeJob& job, const text::RecordBlock& block);

// Renders the rows of one block and keeps nothing: whether encode_block() would find them wrong before it encodes them.
Status check_block(const EncodeJob& job, const text::RecordBlock& block);

// Whether a document belongs to the validation part.
bool is_validation(std::string_view document, int validation_percent);

// Encodes blocks on worker threads; results come back in the order in which blocks went in. Used by one thread.
class EncoderPool {
  public:
    EncoderPool(const EncodeJob& job, int threads);
    ~EncoderPool();  // waits for the blocks in work, drops the rest

    void submit(text::RecordBlock block);
    Result<EncodedBlock> next();  // waits for the oldest block; at least one must be in flight
    std::size_t in_flight() const { return slots_.size(); }
    std::size_t bytes_in_flight() const { return bytes_in_flight_; }  // of their text

  private:
    struct Slot {
        text::RecordBlock block;
        std::optional<Result<EncodedBlock>> result;
    };
    void work(const std::stop_token& stop);

    EncodeJob job_;
    std::mutex mutex_;
    std::condition_variable_any has_work_;
    std::condition_variable has_result_;
    std::deque<Slot> slots_;  // oldest first; only this thread adds or removes, so that sizes need no lock
    std::deque<Slot*> waiting_;
    std::size_t bytes_in_flight_ = 0;
    std::vector<std::jthread> threads_;
};

}  // namespace atl::tokenize
