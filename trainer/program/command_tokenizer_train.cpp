#include "trainer/program/commands.h"
#include "trainer/tokenizer/tokenizer_train.h"
#include "trainer/train/output.h"

namespace atl::program {
namespace {

class TokenizerTrainCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {
            {"input", "files of JSON lines (plain, .gz or .zst), or of text; no pipe", &options_.inputs, true},
            {"template", "text of a document; {{name}} stands for that field of a line, \\n is a newline",
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
