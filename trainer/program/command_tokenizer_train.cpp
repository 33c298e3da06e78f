#include "trainer/program/commands.h"
#include "trainer/tokenizer/tokenizer_train.h"
#include "trainer/train/output.h"

namespace atl::program {
namespace {

class TokenizerTrainCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {
            {"input",
             "files, directories and patterns of JSON lines, a JSON array, CSV, TSV or text, plain, gzip or zstd; no "
             "pipe",
             &options_.inputs, true},
            {.name = "input-format",
             .help = "what the files are; auto goes by their first bytes and their names",
             .target = Flag::Assign([this](std::string_view text) -> Status {
                 ATOLL_TRY(options_.input_format, text::parse_input_format(text));
                 return {};
             }),
             .kind = "auto|jsonl|json|csv|tsv|text|lines",
             .fallback = "auto"},
            {"template", "text of a document; {{name}} stands for that field of a row, \\n is a newline",
             &options_.text_template},
            {"vocab-size", "pieces: 260 at least, and one for each character of the text", &options_.vocab_size, true},
            {"character-coverage", "part of the text's characters that get a piece", &options_.character_coverage},
            {"out", "directory for tokenizer.model", &options_.out, true},
            {"overwrite", "replace a tokenizer that is in --out", &overwrite_}};
    }

    Status run() override {
        ATOLL_RETURN_IF_ERROR(
            train::check_output(train::OutputKind::kTokenizer, options_.out, options_.inputs, overwrite_));
        return tokenizer::train_tokenizer(options_);
    }

  private:
    tokenizer::TokenizerTrainOptions options_;
    bool overwrite_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tokenizer_train_command() {
    return std::make_unique<TokenizerTrainCommand>();
}

}  // namespace atl::program
