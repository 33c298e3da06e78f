#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/tokenizer/expression.h"

namespace atl::tokenizer {

// The "pattern" of a Split or Replace as tokenizer.json has it, {"String": …} or {"Regex": …}.
struct PatternText {
    std::string text;
    bool is_expression = false;
};

// Finds it. Immutable: any number of threads.
class Pattern {
  public:
    // `field`: the member of the tokenizer.json that errors name. kInvalidArgument: the empty text, or an expression
    // that Expression refuses.
    static Result<Pattern> compile(const std::string& field, const PatternText& pattern);

    // Appends the matches in `text`, which must be UTF-8, from left to right. kInvalidArgument as
    // Expression::find_matches().
    Status find_matches(std::string_view text, std::vector<Match>& matches) const;

    // Null: the pattern is a plain text.
    const Expression* expression() const { return expression_ ? &*expression_ : nullptr; }

  private:
    Pattern() = default;
    std::string text_;
    std::optional<Expression> expression_;
};

}  // namespace atl::tokenizer
