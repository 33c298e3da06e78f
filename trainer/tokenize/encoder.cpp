#include "trainer/tokenize/encoder.h"

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "shared/digest/digest.h"
#include "shared/json/json.h"
#include "trainer/dataset/dataset.h"
#include "trainer/tensor/targets.h"
#include "trainer/text/rows.h"

namespace atl::tokenize {
namespace {

bool is_kept(const EncodeJob& job, std::string_view document) {
    if (job.split == Split::kAll) return true;
    return is_validation(document, job.validation_percent) == (job.split == Split::kValidation);
}

std::ptrdiff_t shared_tokens(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Counts the tokens of the answers. A token belongs to what the text before the answer does not begin with, so that
// what counts is what the model must add to that text's tokens; the end token belongs to an answer that ends the text.
Status label_answers(const tokenizer::Tokenizer& tokenizer, const prompt::Document& document,
                     std::span<const std::int32_t> ids, std::vector<std::int32_t>& labels) {
    const std::size_t first = labels.size();
    labels.resize(first + ids.size(), tensor::kIgnoredLabel);
    const std::string_view text = document.text;
    for (const auto& [begin, end] : document.answers) {
        ATOLL_TRY(const auto before, tokenizer.encode_prompt(text.substr(0, begin)));
        const auto from = shared_tokens(ids, before);
        auto to = std::ssize(ids);
        if (end < text.size()) {
            ATOLL_TRY(const auto through, tokenizer.encode_prompt(text.substr(0, end)));
            to = shared_tokens(ids, through);
        }
        if (from < to)
            std::copy(ids.begin() + from, ids.begin() + to, labels.begin() + static_cast<std::ptrdiff_t>(first) + from);
    }
    return {};
}

// Appends the ids of the text of a conversation, and those of `labels` if asked for: its special tokens are tokens,
// what stands between two of them is encoded in one. Of a text that an answer begins or ends within, a token counts
// when it belongs to the answer as in label_answers().
class ChatEncoder {
  public:
    ChatEncoder(const EncodeJob& job, const prompt::Document& document, EncodedBlock& out)
        : job_(job), document_(document), out_(out), labels_(job.loss_on != LossOn::kAll) {}

    Status encode() {
        std::size_t at = 0;
        for (const auto& special : document_.specials) {
            ATOLL_RETURN_IF_ERROR(add_text({at, special.begin}));
            add_special(special);
            at = special.end;
        }
        return add_text({at, document_.text.size()});
    }

  private:
    using Range = prompt::Document::Range;

    void add_special(const Range& range) {
        const std::int32_t id = job_.tokenizer->special_tokens().find(text_of(range))->second.id;
        const bool counts = std::any_of(document_.answers.begin(), document_.answers.end(), [&](const Range& answer) {
            return answer.begin <= range.begin && range.end <= answer.end;
        });
        out_.ids.push_back(id);
        if (labels_) out_.labels.push_back(counts ? id : tensor::kIgnoredLabel);
    }

    Status add_text(const Range& range) {
        if (range.begin == range.end) return {};
        std::vector<std::int32_t> ids;
        ATOLL_RETURN_IF_ERROR(encode_text(range, range.end, ids));
        for (const std::string& text : job_.chat_template->special_tokens())
            if (std::find(ids.begin(), ids.end(), job_.tokenizer->special_tokens().find(text)->second.id) != ids.end())
                return invalid_argument("", "a message holds " + text +
                                                ", a token of the chat template, which this tokenizer cannot encode as "
                                                "text");
        out_.ids.insert(out_.ids.end(), ids.begin(), ids.end());
        return labels_ ? label_text(range, ids) : Status();
    }

    Status label_text(const Range& range, std::span<const std::int32_t> ids) {
        std::vector<std::int32_t> labels(ids.size(), tensor::kIgnoredLabel);
        for (const Range& answer : document_.answers) {
            if (answer.end <= range.begin || answer.begin >= range.end) continue;
            ATOLL_TRY(const auto from, tokens_before(range, answer.begin, ids));
            ATOLL_TRY(const auto to, tokens_before(range, answer.end, ids));
            if (from < to) std::copy(ids.begin() + from, ids.begin() + to, labels.begin() + from);
        }
        out_.labels.insert(out_.labels.end(), labels.begin(), labels.end());
        return {};
    }

    // Tokens of a text that its part before `end` begins with.
    Result<std::ptrdiff_t> tokens_before(const Range& range, std::size_t end, std::span<const std::int32_t> ids) const {
        if (end <= range.begin) return 0;
        if (end >= range.end) return std::ssize(ids);
        std::vector<std::int32_t> before;
        ATOLL_RETURN_IF_ERROR(encode_text(range, end, before));
        return shared_tokens(ids, before);
    }

    Status encode_text(const Range& range, std::size_t end, std::vector<std::int32_t>& ids) const {
        const std::string_view text = text_of({range.begin, end});
        return range.begin == 0 ? job_.tokenizer->encode(text, ids) : job_.tokenizer->encode_behind(text, ids);
    }

    std::string_view text_of(const Range& range) const {
        return std::string_view(document_.text).substr(range.begin, range.end - range.begin);
    }

    const EncodeJob& job_;
    const prompt::Document& document_;
    EncodedBlock& out_;
    bool labels_;
};

// Whether the row has a form of text/conversation.h.
bool is_conversation(const json::Json& row) {
    const auto is_list = [&](const char* key) { return row.contains(key) && row[key].is_array(); };
    return is_list("messages") || is_list("conversations") || (row.contains("prompt") && row.contains("completion"));
}

// What to do with a row that is a list of rows, as APIs answer; empty: it is none.
std::string advice_for_lists(const json::Json& row) {
    for (const char* key : {"data", "rows", "items", "examples"})
        if (row.is_object() && row.contains(key) && row[key].is_array() && !row[key].empty())
            return std::string("; `jq -c '.") + key + "[]' FILE` writes the rows of its list";
    return {};
}

Result<prompt::Document> render_text(const EncodeJob& job, const json::Json& row, std::string_view where) {
    auto document = job.text_template->render(row, where);
    if (document.ok()) return document;
    const std::string advice =
        is_conversation(row) ? "; --chat-template reads rows of conversations" : advice_for_lists(row);
    return Error{document.error().code, document.error().message + advice, document.error().field};
}

Result<prompt::Document> render(const EncodeJob& job, const json::Json& row, std::string_view where) {
    if (job.chat_template == nullptr) return render_text(job, row, where);
    ATOLL_TRY(const text::Conversation conversation, text::parse_conversation(row, where));
    return job.chat_template->render(conversation, job.loss_on == LossOn::kLastAnswer, where);
}

Status encode_document(const EncodeJob& job, const prompt::Document& document, EncodedBlock& out) {
    if (job.chat_template != nullptr) return ChatEncoder(job, document, out).encode();
    const std::size_t before = out.ids.size();
    ATOLL_RETURN_IF_ERROR(job.tokenizer->encode_document(document.text, out.ids));
    if (job.loss_on == LossOn::kAll) return {};
    return label_answers(*job.tokenizer, document, std::span(out.ids).subspan(before), out.labels);
}

Status encode_row(const EncodeJob& job, const json::Json& row, const std::string& where, EncodedBlock& out) {
    ATOLL_TRY(const prompt::Document document, render(job, row, where));
    if (!is_kept(job, document.text)) {
        ++out.others;
        return {};
    }
    const std::size_t before = out.ids.size();
    const Status status = encode_document(job, document, out);
    if (!status.ok()) return Error{status.error().code, where + ": " + status.error().message, where};
    out.lengths.push_back(static_cast<std::int64_t>(out.ids.size() - before));
    out.bytes += static_cast<std::int64_t>(document.text.size());
    return {};
}

// The thread body's boundary: what a library throws becomes an Error.
Result<EncodedBlock> encode_block_caught(const EncodeJob& job, const text::RecordBlock& block) {
    try {
        return encode_block(job, block);
    } catch (const std::exception& error) {
        return internal_error(std::string("tokenize: ") + error.what());
    }
}

}  // namespace

bool is_validation(std::string_view document, int validation_percent) {
    const std::uint64_t prefix = std::stoull(digest::sha256(document).substr(0, 16), nullptr, 16);
    return prefix % 100 < static_cast<std::uint64_t>(validation_percent);
}

Status check_block(const EncodeJob& job, const text::RecordBlock& block) {
    const auto use = [&](const json::Json& row, const std::string& where) -> Status {
        const auto rendered = render(job, row, where);
        return rendered.ok() ? Status() : rendered.error();
    };
    return text::for_each_row(block, job.inputs[block.file].path, job.chat_template == nullptr, use);
}

Result<EncodedBlock> encode_block(const EncodeJob& job, const text::RecordBlock& block) {
    EncodedBlock out;
    out.line_bytes = std::ssize(block.text);
    out.end = block.end;
    out.fraction = block.fraction;
    const bool keep_digits = job.chat_template == nullptr;  // a template writes numbers out; a conversation has none
    const auto use = [&](const json::Json& row, const std::string& where) { return encode_row(job, row, where, out); };
    ATOLL_RETURN_IF_ERROR(text::for_each_row(block, job.inputs[block.file].path, keep_digits, use));
    return out;
}

EncoderPool::EncoderPool(const EncodeJob& job, int threads) : job_(job) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

EncoderPool::~EncoderPool() {
    for (auto& thread : threads_) thread.request_stop();
}

void EncoderPool::submit(text::RecordBlock block) {
    bytes_in_flight_ += block.text.size();
    {
        const std::lock_guard lock(mutex_);
        slots_.push_back({std::move(block), std::nullopt});
        waiting_.push_back(&slots_.back());
    }
    has_work_.notify_one();
}

Result<EncodedBlock> EncoderPool::next() {
    std::unique_lock lock(mutex_);
    check(!slots_.empty(), "EncoderPool::next without a block in flight");
    has_result_.wait(lock, [this] { return slots_.front().result.has_value(); });
    auto result = std::move(*slots_.front().result);
    slots_.pop_front();
    if (result.ok()) bytes_in_flight_ -= static_cast<std::size_t>(result->line_bytes);
    return result;
}

void EncoderPool::work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (has_work_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
        if (stop.stop_requested()) return;
        Slot* slot = waiting_.front();
        waiting_.pop_front();
        lock.unlock();
        auto result = encode_block_caught(job_, slot->block);
        slot->block = {};  // its text is not needed while the result waits for its turn
        lock.lock();
        slot->result = std::move(result);
        has_result_.notify_one();
    }
}

}  // namespace atl::tokenize
