#include <charconv>
#include <utility>

#include "shared/json/json.h"
#include "trainer/program/commands.h"
#include "trainer/text/chat_formats.h"
#include "trainer/text/input_format.h"
#include "trainer/tokenize/chat_choice.h"
#include "trainer/tokenize/tokenize.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/output.h"

namespace atl::program {
namespace {

Flag choice(const char* name, const char* help, const char* kind, const char* fallback, Flag::Assign assign) {
    return {.name = name, .help = help, .target = std::move(assign), .kind = kind, .fallback = fallback};
}

class TokenizeCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {
            {"tokenizer", "directory with tokenizer.model, tokenizer.json, or vocab.json and merges.txt",
             &options_.tokenizer, true},
            {"input",
             "files, directories and patterns ('texts/*.jsonl.gz'): JSON lines, a JSON array, CSV, TSV or text, plain, "
             "gzip or zstd; no pipe",
             &options_.inputs, true},
            choice(
                "input-format",
                "what the files are; auto goes by their first bytes and their names: text is a document a file, lines "
                "a document a line",
                "auto|jsonl|json|csv|tsv|text|lines", "auto",
                [this](std::string_view text) -> Status {
                    ATOLL_TRY(options_.input_format, text::parse_input_format(text));
                    return {};
                }),
            choice("template",
                   "text of a document; {{name}} stands for that field of a row, {{#answer}}…{{/answer}} marks the "
                   "answer, \\n is a newline, \\t a tab, \\\\ a backslash",
                   "TEXT", "{{text}}",
                   [this](std::string_view text) -> Status {
                       options_.text_template = text;
                       return {};
                   }),
            {"chat-template",
             "rows are conversations (messages, ShareGPT's conversations, or prompt and completion), written as this "
             "says: auto (as the tokenizer tells), " +
                 text::chat_format_names() + ", or a JSON file",
             &options_.chat_template},
            {"out", "data directory to make", &options_.out, true},
            {"overwrite", "replace a data directory that is there", &overwrite_},
            {"check",
             "check only what the files are, that the tokenizer can be read and that the first rows fit the template; "
             "writes nothing",
             &checks_},
            {"seq-len", "tokens a row", &options_.seq_len, true},
            choice("batching", "what a row holds", "packing|padding", "packing",
                   [this](std::string_view text) -> Status {
                       ATOLL_TRY(options_.batching, tokenize::parse_batching(text));
                       return {};
                   }),
            choice("loss-on",
                   "which tokens count: all, the answers (of conversations: what the assistant says), or the last one; "
                   "the "
                   "default is answer when there are any",
                   "all|answer|last-answer", "",
                   [this](std::string_view text) -> Status {
                       ATOLL_TRY(options_.loss_on, tokenize::parse_loss_on(text));
                       return {};
                   }),
            choice("truncate", "cut documents to a row, or let them go on in the next; the default is on for padding",
                   "on|off", "",
                   [this](std::string_view text) -> Status {
                       if (text != "on" && text != "off") return invalid_argument("", "must be on or off");
                       options_.truncate = text == "on";
                       return {};
                   }),
            choice("split", "which documents to keep", "all|train|validation", "all",
                   [this](std::string_view text) -> Status {
                       ATOLL_TRY(options_.split, tokenize::parse_split(text));
                       return {};
                   }),
            {.name = "validation-percent",
             .help = "of the documents, 1 to 99, chosen by their hash; with --split train or validation",
             .target = Flag::Assign(
                 [this](std::string_view text) -> Status { return read_count(text, 99, options_.validation_percent); }),
             .kind = "INT"},
            {"part-bytes", "of input, after which what is done outlives a kill", &options_.part_bytes},
            {.name = "threads",
             .help = "the default is the cores that this process may use",
             .target = Flag::Assign(
                 [this](std::string_view text) -> Status { return read_count(text, 4096, options_.threads); }),
             .kind = "INT"}};
    }

    Status run() override {
        ATOLL_RETURN_IF_ERROR(check_split());
        if (checks_) {
            ATOLL_TRY(const auto files, tokenize::check_input(options_));
            train::print_line(json::Json{{"input", text::describe(files)}}.dump());
            return {};
        }
        std::vector<std::filesystem::path> reads = options_.inputs;
        reads.push_back(options_.tokenizer);
        if (tokenize::is_chat_template_file(options_.chat_template)) reads.emplace_back(options_.chat_template);
        ATOLL_RETURN_IF_ERROR(train::check_output(train::OutputKind::kData, options_.out, reads, overwrite_));
        ATOLL_TRY(const tokenize::TokenizeReport report, tokenize::tokenize(options_));
        train::print_line(tokenize::to_json_line(report));
        return {};
    }

  private:
    static Status read_count(std::string_view text, int max, int& count) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
        const bool is_number = error == std::errc() && end == text.data() + text.size();
        if (is_number && count >= 1 && count <= max) return {};
        return invalid_argument("",
                                "'" + std::string(text) + "' is not a whole number from 1 to " + std::to_string(max));
    }
    // Without the other, each of the two says nothing.
    Status check_split() const {
        const bool splits = options_.split != tokenize::Split::kAll;
        if (splits == (options_.validation_percent > 0)) return {};
        if (splits) {
            return invalid_argument("--validation-percent", std::string("is required: --split ") +
                                                                tokenize::to_string(options_.split) +
                                                                " says which of two parts, this how large they are");
        }
        return invalid_argument("--validation-percent", "belongs to --split train or --split validation");
    }

    tokenize::TokenizeOptions options_;
    bool overwrite_ = false;
    bool checks_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() {
    return std::make_unique<TokenizeCommand>();
}

}  // namespace atl::program
