#include <utility>

#include "trainer/data/tokenize.h"
#include "trainer/train/commands.h"
#include "trainer/train/metrics.h"

namespace atl::train {
namespace {

Flag choice(const char* name, const char* help, const char* kind, const char* fallback, Flag::Assign assign) {
    return {name, help, std::move(assign), false, false, kind, fallback};
}

class TokenizeCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {
            {"tokenizer", "directory with tokenizer.model, tokenizer.json, or vocab.json and merges.txt",
             &options_.tokenizer, true},
            {"input", "JSON lines, plain, .gz or .zst", &options_.inputs, true},
            {"template",
             "text of a document; {{name}} stands for that field of a line, {{#answer}}…{{/answer}} marks the answer",
             &options_.text_template},
            {"out", "data directory to make", &options_.out, true},
            {"overwrite", "replace a data directory that is there", &options_.overwrite},
            {"seq-len", "tokens a row", &options_.seq_len, true},
            choice("batching", "what a row holds", "packing|padding", "packing",
                   [this](std::string_view text) -> Status {
                       ATOLL_TRY(options_.batching, data::parse_batching(text));
                       return {};
                   }),
            choice("loss-on", "which tokens count; the default is answer when the template marks any", "all|answer", "",
                   [this](std::string_view text) -> Status {
                       ATOLL_TRY(options_.loss_on, data::parse_loss_on(text));
                       return {};
                   }),
            choice("truncate", "cut documents to a row, or let them go on in the next; the default is on for padding",
                   "on|off", "",
                   [this](std::string_view text) -> Status {
                       if (text != "on" && text != "off") return invalid_argument("--truncate", "must be on or off");
                       options_.truncate = text == "on";
                       return {};
                   }),
            choice("split", "which documents to keep", "all|train|validation", "all",
                   [this](std::string_view text) -> Status {
                       ATOLL_TRY(options_.split, data::parse_split(text));
                       return {};
                   }),
            {"validation-percent", "of the documents, chosen by their hash", &percent_},
            {"part-bytes", "of input lines, after which what is done outlives a kill", &options_.part_bytes},
            {"threads", "the default is the cores that this process may use", &threads_}};
    }

    Status run() override {
        if (percent_ < 0 || percent_ > 100) return invalid_argument("--validation-percent", "must be in 0…100");
        if (threads_ < 0 || threads_ > 4096) return invalid_argument("--threads", "must be at least 1");
        options_.validation_percent = static_cast<int>(percent_);
        options_.threads = static_cast<int>(threads_);
        ATOLL_TRY(const data::TokenizeReport report, data::tokenize(options_));
        print_line(data::to_json_line(report));
        return {};
    }

  private:
    data::TokenizeOptions options_;
    std::int64_t percent_ = 0;
    std::int64_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() {
    return std::make_unique<TokenizeCommand>();
}

}  // namespace atl::train
