#include "trainer/tokenize/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/host/cores.h"
#include "shared/log/log.h"
#include "shared/log/progress.h"
#include "shared/log/warn.h"
#include "shared/prompt/template.h"
#include "trainer/text/input_format.h"
#include "trainer/text/record_reader.h"
#include "trainer/tokenize/chat_choice.h"
#include "trainer/tokenize/data_writer.h"
#include "trainer/tokenize/encoder.h"
#include "trainer/tokenize/partial_run.h"
#include "trainer/tokenize/row_builder.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenize {
namespace {

constexpr std::int64_t kSeqLenMax = 1 << 20;

Status check_options(const TokenizeOptions& options) {
    if (options.inputs.empty()) return invalid_argument("input", "names no file");
    if (options.seq_len < 2 || options.seq_len > kSeqLenMax)
        return invalid_argument("seq-len", "must be between 2 and " + std::to_string(kSeqLenMax));
    if (!options.chat_template.empty() && options.text_template)
        return invalid_argument("chat-template", "stands in the place of --template: give one of them");
    if (options.validation_percent < 0 || options.validation_percent > 100)
        return invalid_argument("validation-percent", "must be between 0 and 100");
    if (options.part_bytes < 1) return invalid_argument("part-bytes", "must be at least 1");
    if (options.threads < 0) return invalid_argument("threads", "must not be negative");
    return {};
}

// What makes documents of rows: a template, or a chat template.
struct Documents {
    std::optional<prompt::Template> text_template;
    std::optional<ChatChoice> chat;

    bool has_answer() const { return chat || text_template->has_answer(); }
    // As data.json tells it.
    std::string name() const { return chat ? "chat:" + chat->name : text_template->text(); }
    nlohmann::ordered_json chat_json() const { return nlohmann::ordered_json::parse(chat->json); }
};

// What the bytes of the result depend on. Inputs are told by name, size and time.
Result<nlohmann::json> describe_run(const TokenizeOptions& options, const std::vector<text::InputFile>& files,
                                    const tokenizer::Tokenizer& tokenizer, const Documents& documents) {
    nlohmann::json inputs = nlohmann::json::array();
    for (const auto& [path, format] : files) {
        std::error_code error;
        const auto size = std::filesystem::file_size(path, error);
        if (error) return not_found("cannot open " + path.string() + ": " + error.message(), path.string());
        const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
        nlohmann::json input = {{"path", path.string()}, {"size", size}, {"time", time}};
        if (format != text::InputFormat::kJsonLines) input["format"] = to_string(format);
        inputs.push_back(std::move(input));
    }
    nlohmann::json description = {{"schema", 1},
                                  {"tokenizer_sha256", tokenizer.sha256()},
                                  {"inputs", inputs},
                                  {"template", documents.name()},
                                  {"seq_len", options.seq_len},
                                  {"batching", to_string(options.batching)},
                                  {"loss_on", to_string(*options.loss_on)},
                                  {"truncate", *options.truncate},
                                  {"split", to_string(options.split)},
                                  {"validation_percent", options.validation_percent}};
    if (documents.chat) description["chat_template"] = documents.chat_json();
    return description;
}

int thread_count(const TokenizeOptions& options) {
    return options.threads > 0 ? options.threads : host::usable_cores();
}

// One run of the command: blocks go to the pool and come back in order, their documents become rows, rows are written.
// After each part of the input what is written is made safe, and a process that is started later goes on from there.
class Run {
  public:
    Run(const TokenizeOptions& options, const EncodeJob& job, const RowOptions& rows, DataWriter& writer,
        PartialRun& partial)
        : options_(options),
          row_options_(rows),
          reader_(job.inputs),
          threads_(static_cast<std::size_t>(thread_count(options))),
          pool_(job, thread_count(options)),
          blocks_max_(2 * threads_ + 2),
          rows_(rows),
          writer_(writer),
          partial_(partial) {}

    Result<TokenizeReport> execute() {
        ATOLL_RETURN_IF_ERROR(take_up());
        bool more = true;
        while (more || pool_.in_flight() > 0) {
            if (more && has_room()) {
                ATOLL_TRY(more, submit_next());
                continue;
            }
            ATOLL_TRY(const EncodedBlock block, pool_.next());
            ATOLL_RETURN_IF_ERROR(take(block));
            const double megabytes = static_cast<double>(bytes_here_) / 1e6;  // of text, by this process
            progress_.at(fraction_done_, fmt::format("{} documents, {:.1f} MB of text, {:.2f} MB/s", report_.documents,
                                                     megabytes, megabytes / std::max(progress_.elapsed_s(), 1e-9)));
        }
        rows_.finish();
        ATOLL_RETURN_IF_ERROR(write_rows());
        report_.rows = writer_.rows();
        report_.tokens = rows_.state().tokens;
        report_.targets = rows_.state().targets;
        report_.longer = rows_.state().documents_longer;
        report_.truncated = row_options_.truncate ? report_.longer : 0;
        report_.tokens_truncated = rows_.state().tokens_truncated;
        report_.wall_s = progress_.elapsed_s();
        return report_;
    }

  private:
    // A block is longer than kBlockBytes when a row is: of such ones few may be in flight, but each thread has one.
    bool has_room() const {
        return pool_.in_flight() < threads_ ||
               (pool_.in_flight() < blocks_max_ &&
                pool_.bytes_in_flight() < 2 * blocks_max_ * text::RecordReader::kBlockBytes);
    }

    // Goes on behind the parts of an earlier process that are whole.
    Status take_up() {
        std::size_t whole = 0;
        for (const PartRecord& part : partial_.parts()) {
            ATOLL_TRY(const bool taken, writer_.take_part(part.elements, part.sha256));
            if (!taken) break;
            ++whole;
        }
        ATOLL_RETURN_IF_ERROR(partial_.keep(whole));
        ATOLL_RETURN_IF_ERROR(writer_.begin());
        if (whole == 0) return {};
        const PartRecord& last = partial_.parts().back();
        ATOLL_RETURN_IF_ERROR(reader_.start_at(last.next));
        rows_ = RowBuilder(row_options_, last.rows);
        report_.documents = last.documents;
        report_.bytes = last.bytes;
        report_.parts_found = static_cast<std::int64_t>(whole);
        progress_.begin_at(reader_.fraction_read());
        spdlog::info("tokenize: {} parts are there, goes on behind them", whole);
        return {};
    }

    Result<bool> submit_next() {
        ATOLL_TRY(std::optional<text::RecordBlock> block, reader_.next());
        if (!block) return false;
        pool_.submit(std::move(*block));
        return true;
    }

    Status take(const EncodedBlock& block) {
        std::span<const std::int32_t> ids(block.ids);
        std::span<const std::int32_t> labels(block.labels);  // none, or one an id
        for (const std::int64_t length : block.lengths) {
            const auto count = static_cast<std::size_t>(length);
            rows_.add_document(ids.first(count), labels.first(std::min(count, labels.size())));
            ids = ids.subspan(count);
            labels = labels.subspan(std::min(count, labels.size()));
        }
        report_.documents += static_cast<std::int64_t>(block.lengths.size());
        report_.others += block.others;
        report_.bytes += block.bytes;
        bytes_here_ += block.bytes;
        fraction_done_ = block.fraction;
        part_bytes_ += block.line_bytes;
        ATOLL_RETURN_IF_ERROR(write_rows());
        return part_bytes_ < options_.part_bytes ? Status() : end_part(block.end);
    }

    Status end_part(const text::RecordPosition& next) {
        PartRecord part{next, rows_.state(), report_.documents, report_.bytes, writer_.elements(), {}};
        ATOLL_TRY(part.sha256, writer_.end_part());
        ATOLL_RETURN_IF_ERROR(partial_.add(part));
        part_bytes_ = 0;
        if (options_.on_part) options_.on_part();
        return {};
    }

    Status write_rows() {
        ATOLL_RETURN_IF_ERROR(writer_.append(rows_.columns()));
        rows_.clear();
        return {};
    }

    const TokenizeOptions& options_;
    const RowOptions& row_options_;
    text::RecordReader reader_;
    std::size_t threads_;
    EncoderPool pool_;
    std::size_t blocks_max_;  // in flight: what bounds the memory
    RowBuilder rows_;
    DataWriter& writer_;
    PartialRun& partial_;
    TokenizeReport report_;
    std::int64_t bytes_here_ = 0;  // of text, by this process
    std::int64_t part_bytes_ = 0;  // of input since the last part
    double fraction_done_ = 0;     // of the input, up to the last block that was taken
    log::Progress progress_{"tokenize"};
};

std::string data_json(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer, const Documents& documents,
                      const TokenizeReport& report) {
    nlohmann::ordered_json json = {
        {"schema", 1},
        {"tokenizer_sha256", tokenizer.sha256()},
        {"tokenizer_reader", tokenizer::kReader},
        {"vocab_size", tokenizer.vocab_size()},
        {"seq_len", options.seq_len},
        {"batching", to_string(options.batching)},
        {"template", documents.name()},
        {"loss_on", to_string(*options.loss_on)},
        {"truncate", *options.truncate},
        {"split", to_string(options.split)},
        {"validation_percent", options.validation_percent},
        {"documents", report.documents},
        {"rows", report.rows},
        {"tokens", report.tokens},
        {"targets", report.targets},
        {"without_end", report.without_end},
        {"longer", report.longer},
        {"truncated", report.truncated},
        {"tokens_truncated", report.tokens_truncated},
        {"bytes", report.bytes},
        {"fingerprint", report.fingerprint},
    };
    if (documents.chat) json["chat_template"] = documents.chat_json();
    return json.dump(2) + "\n";
}

// Of other parts of the input, which an earlier process has read, only what the split kept is known.
Error no_document(const TokenizeOptions& options, const TokenizeReport& report) {
    if (report.others == 1 && report.parts_found == 0)
        return invalid_argument(
            "input", fmt::format("the input holds one document, which is not of the split {}: one document cannot be "
                                 "in both; add more, or give this split alone a {} --validation-percent than {}",
                                 to_string(options.split), options.split == Split::kValidation ? "larger" : "smaller",
                                 options.validation_percent));
    if (report.others > 0 || report.parts_found > 0)
        return invalid_argument(
            "input", fmt::format("the input holds no document for the split {}: a {} "
                                 "--validation-percent than {} gives it some",
                                 to_string(options.split), options.split == Split::kValidation ? "larger" : "smaller",
                                 options.validation_percent));
    std::string files;
    for (const auto& input : options.inputs) files += (files.empty() ? "" : ", ") + input.string();
    return invalid_argument("input", "no document: there is no row in " + files);
}

// A chat template puts its own ends.
bool lacks_end(const tokenizer::Tokenizer& tokenizer, const Documents& documents) {
    return !documents.chat && !tokenizer.eos();
}

void warn_without_end(const TokenizeOptions& options, const TokenizeReport& report) {
    if (report.without_end > 0)
        log::warn(
            fmt::format("{} names no eos_token: {} of {} documents have no end token, and the model will not "
                        "learn to stop. Add \"eos_token\" to tokenizer_config.json and tokenize again",
                        options.tokenizer.string(), report.without_end, report.documents));
}

void warn_of_cut(const TokenizeOptions& options, const TokenizeReport& report) {
    constexpr std::int64_t kPercentTold = 10;
    const std::int64_t all = report.tokens + report.tokens_truncated;
    const std::int64_t percent = 100 * report.tokens_truncated / std::max<std::int64_t>(all, 1);
    if (percent < kPercentTold) return;
    log::warn(fmt::format(
        "{} of {} tokens ({} %) were cut: {} of {} documents are longer than {} tokens. A larger --seq-len or "
        "--truncate off keeps them",
        report.tokens_truncated, all, percent, report.truncated, report.documents, options.seq_len));
}

// That there is something to learn from.
Status check_report(const TokenizeOptions& options, const TokenizeReport& report) {
    if (report.documents == 0) return no_document(options, report);
    if (report.targets > 0) return {};
    const std::string counts = std::string("no token counts in the loss (--loss-on ") + to_string(*options.loss_on);
    if (report.truncated == 0) return invalid_argument("input", counts + "): there is nothing to learn from");
    return invalid_argument("seq-len", counts + "): " + std::to_string(report.truncated) + " of " +
                                           std::to_string(report.documents) + " documents were cut to " +
                                           std::to_string(options.seq_len) +
                                           " tokens; a larger --seq-len or --truncate off keeps what follows");
}

// With what was not given.
Result<TokenizeOptions> settle(TokenizeOptions options, const Documents& documents) {
    const bool has_answer = documents.has_answer();
    if (!options.loss_on) options.loss_on = has_answer ? LossOn::kAnswer : LossOn::kAll;
    if (!options.truncate) options.truncate = options.batching == Batching::kPadding;
    if (options.loss_on == LossOn::kAnswer && !has_answer)
        return invalid_argument("loss-on",
                                "'answer' needs a template that marks the answer: "
                                "\"{{question}} {{#answer}}{{reply}}{{/answer}}\"");
    if (options.loss_on == LossOn::kLastAnswer && !documents.chat)
        return invalid_argument("loss-on", "'last-answer' is for conversations: it needs a chat template");
    return options;
}

Result<prompt::Template> parse_template(const TokenizeOptions& options) {
    return prompt::Template::parse(options.text_template.value_or("{{text}}"));
}

Result<std::unique_ptr<tokenizer::Tokenizer>> open_tokenizer(const TokenizeOptions& options) {
    auto opened = tokenizer::Tokenizer::open(options.tokenizer);
    if (!opened.ok()) return Error{opened.error().code, opened.error().message, "tokenizer"};
    return opened;
}

void tell_left_out(const std::vector<std::filesystem::path>& files) {
    constexpr std::size_t kNamedMax = 5;
    if (files.empty()) return;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min(files.size(), kNamedMax); ++i) names.push_back(files[i].string());
    spdlog::info("tokenize: {}{} left out, as not data; to read such a file, name it itself", join(names),
                 files.size() > kNamedMax ? fmt::format(" and {} more", files.size() - kNamedMax) : "");
}

Result<std::vector<text::InputFile>> open_files(const TokenizeOptions& options) {
    return text::open_inputs(options.inputs, {.format = options.input_format, .on_left_out = tell_left_out});
}

Result<Documents> open_documents(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer) {
    Documents documents;
    if (options.chat_template.empty()) {
        ATOLL_TRY(documents.text_template, parse_template(options));
    } else {
        ATOLL_TRY(documents.chat, choose_chat_template(options.chat_template, options.tokenizer, tokenizer));
    }
    return documents;
}

// Enough to tell a template's mistake, and little to read on a login node.
constexpr std::size_t kFilesCheckedMax = 32;
constexpr std::size_t kBytesChecked = 64U << 10;

// The rows at the beginning of a file.
Status check_rows(const EncodeJob& job, const text::InputFile& file) {
    if (file.format == text::InputFormat::kText)  // a row is the whole file, and has one field
        return check_block(job, {.format = file.format, .table = {}, .text = ".", .end = {}});
    text::RecordReader reader({file}, {.block_bytes = kBytesChecked});
    ATOLL_TRY(const auto block, reader.next());
    return block ? check_block(job, *block) : Status();
}

Result<TokenizeReport> make_data(const TokenizeOptions& options, const std::vector<text::InputFile>& files,
                                 const tokenizer::Tokenizer& tokenizer, const Documents& documents,
                                 PartialRun& partial) {
    const EncodeJob job{.tokenizer = &tokenizer,
                        .text_template = documents.chat ? nullptr : &*documents.text_template,
                        .inputs = files,
                        .split = options.split,
                        .validation_percent = options.validation_percent,
                        .loss_on = *options.loss_on,
                        .chat_template = documents.chat ? &documents.chat->chat_template : nullptr};
    const RowOptions rows{options.batching, options.seq_len, tokenizer.eos().value_or(0), *options.truncate,
                          options.loss_on != LossOn::kAll};
    ATOLL_TRY(DataWriter writer,
              DataWriter::open({partial.data(), partial.spool()}, RowBuilder::column_names(rows), options.seq_len));
    ATOLL_TRY(TokenizeReport report, Run(options, job, rows, writer, partial).execute());
    ATOLL_RETURN_IF_ERROR(check_report(options, report));
    if (lacks_end(tokenizer, documents)) report.without_end = report.documents;
    ATOLL_TRY(report.fingerprint, writer.finish());
    ATOLL_RETURN_IF_ERROR(
        write_file_atomic(partial.data() / kDataInfo, data_json(options, tokenizer, documents, report)));
    ATOLL_RETURN_IF_ERROR(partial.put_in_place());
    warn_without_end(options, report);
    warn_of_cut(options, report);
    return report;
}

}  // namespace

const char* to_string(Batching batching) {
    return batching == Batching::kPacking ? "packing" : "padding";
}

Result<Batching> parse_batching(std::string_view name) {
    if (name == "packing") return Batching::kPacking;
    if (name == "padding") return Batching::kPadding;
    return invalid_argument("batching", "must be packing or padding, not \"" + std::string(name) + "\"");
}

const char* to_string(Split split) {
    switch (split) {
        case Split::kAll:
            return "all";
        case Split::kTrain:
            return "train";
        case Split::kValidation:
            return "validation";
    }
    return "all";
}

Result<Split> parse_split(std::string_view name) {
    for (const Split split : {Split::kAll, Split::kTrain, Split::kValidation})
        if (name == to_string(split)) return split;
    return invalid_argument("split", "must be all, train or validation, not \"" + std::string(name) + "\"");
}

const char* to_string(LossOn loss_on) {
    switch (loss_on) {
        case LossOn::kAll:
            return "all";
        case LossOn::kAnswer:
            return "answer";
        case LossOn::kLastAnswer:
            return "last-answer";
    }
    return "all";
}

Result<LossOn> parse_loss_on(std::string_view name) {
    for (const LossOn loss_on : {LossOn::kAll, LossOn::kAnswer, LossOn::kLastAnswer})
        if (name == to_string(loss_on)) return loss_on;
    return invalid_argument("loss-on", "must be all, answer or last-answer, not \"" + std::string(name) + "\"");
}

Result<TokenizeReport> tokenize(const TokenizeOptions& given) {
    ATOLL_RETURN_IF_ERROR(check_options(given));
    ATOLL_TRY(const auto opened, open_tokenizer(given));
    const tokenizer::Tokenizer& tokenizer = *opened;
    ATOLL_TRY(const Documents documents, open_documents(given, tokenizer));
    ATOLL_TRY(const TokenizeOptions options, settle(given, documents));
    ATOLL_TRY(const auto files, open_files(options));
    if (std::ranges::any_of(files, [](const auto& file) { return file.format != text::InputFormat::kJsonLines; }))
        spdlog::info("tokenize: reads {}", describe(files));
    ATOLL_TRY(const nlohmann::json description, describe_run(options, files, tokenizer, documents));
    ATOLL_TRY(PartialRun partial, PartialRun::open(options.out, description));
    auto report = make_data(options, files, tokenizer, documents, partial);
    // After a system's fault the parts stay; wrong input would only be found again.
    const bool is_input = !report.ok() && report.error().code == ErrorCode::kInvalidArgument;
    if (is_input) (void)partial.discard();  // the input is what is to be told
    return report;
}

Result<std::vector<text::InputFile>> check_input(const TokenizeOptions& options) {
    ATOLL_RETURN_IF_ERROR(check_options(options));
    ATOLL_TRY(const auto tokenizer, open_tokenizer(options));
    ATOLL_TRY(const Documents documents, open_documents(options, *tokenizer));
    ATOLL_TRY(auto files, open_files(options));
    EncodeJob job{.text_template = documents.chat ? nullptr : &*documents.text_template,
                  .inputs = {},
                  .loss_on = options.loss_on.value_or(LossOn::kAll),
                  .chat_template = documents.chat ? &documents.chat->chat_template : nullptr};
    for (std::size_t i = 0; i < std::min(files.size(), kFilesCheckedMax); ++i) {
        job.inputs = {files[i]};
        const Status status = check_rows(job, files[i]);
        if (!status.ok()) return Error{status.error().code, status.error().message, "input"};
    }
    return files;
}

std::string to_json_line(const TokenizeReport& report) {
    const nlohmann::ordered_json json = {
        {"documents", report.documents},
        {"rows", report.rows},
        {"tokens", report.tokens},
        {"targets", report.targets},
        {"without_end", report.without_end},
        {"longer", report.longer},
        {"truncated", report.truncated},
        {"tokens_truncated", report.tokens_truncated},
        {"bytes", report.bytes},
        {"wall_s", report.wall_s},
        {"parts_found", report.parts_found},
        {"fingerprint", report.fingerprint},
    };
    return json.dump();
}

}  // namespace atl::tokenize
