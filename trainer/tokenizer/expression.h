#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::tokenizer {

// Where a pattern matches: the bytes [begin, end) of a text.
struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
};

// A regular expression of a tokenizer.json. Immutable: any number of threads.
class Expression {
  public:
    // `text` is an expression in Oniguruma's dialect as far as tokenizers use it (\s, \S, \p{L}, (?i:…), lookahead).
    // `field`: the member of the tokenizer.json that errors name, of matching too. kInvalidArgument names what PCRE2
    // would read differently (classes in classes, \h, \w, …).
    static Result<Expression> compile(const std::string& field, const std::string& text);
    ~Expression();
    Expression(Expression&&) noexcept;
    Expression& operator=(Expression&&) noexcept;

    // Appends the matches in `text`, which must be UTF-8, from left to right; none is empty. kInvalidArgument when the
    // expression takes more than PCRE2's limits allow (`(a*)*b` and its like; those of real tokenizers do not).
    Status find_matches(std::string_view text, std::vector<Match>& matches) const;

    // Appends the words of `text`, as a "Split" of tokenizer.json with behaviour Isolated cuts it: each match is a
    // word, and so is what lies between two matches. Errors as above.
    Status split(std::string_view text, std::vector<std::string_view>& words) const;

  private:
    template <class Use>
    Status for_each_match(std::string_view text, Use&& use) const;

    struct Impl;
    explicit Expression(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// The expression of GPT-2 (https://github.com/openai/gpt-2), which "ByteLevel" with use_regex stands for.
extern const char* const kGpt2Expression;

}  // namespace atl::tokenizer
