#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::tokenizer {

// Cuts a text into the words that byte-pair encoding works on, as a "Split" of tokenizer.json with behaviour Isolated:
// each match of the expression is a word, and so is what lies between two matches. Immutable: any number of threads.
class PreTokenizer {
  public:
    // The regular expression is Oniguruma's dialect as far as tokenizers use it (\s, \S, \p{L}, (?i:…), lookahead).
    // kInvalidArgument names what PCRE2 would read differently (classes in classes, \h, \w, …).
    static Result<PreTokenizer> compile(const std::string& expression);
    ~PreTokenizer();
    PreTokenizer(PreTokenizer&&) noexcept;
    PreTokenizer& operator=(PreTokenizer&&) noexcept;

    // Appends the words of `text`, which must be UTF-8. kInvalidArgument when the expression takes more than PCRE2's
    // limits allow (`(a*)*b` and its like; those of real tokenizers do not).
    Status split(std::string_view text, std::vector<std::string_view>& words) const;

  private:
    struct Impl;
    explicit PreTokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// The expression of GPT-2 (https://github.com/openai/gpt-2), which "ByteLevel" with use_regex stands for.
extern const char* const kGpt2Expression;

}  // namespace atl::tokenizer
