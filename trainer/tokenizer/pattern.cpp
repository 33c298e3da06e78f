#include "trainer/tokenizer/pattern.h"

#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {

Result<Pattern> Pattern::compile(const std::string& field, const PatternText& pattern) {
    Pattern result;
    if (pattern.text.empty()) return fields::bad(field, "the empty text is not supported as a pattern");
    result.text_ = pattern.text;
    if (!pattern.is_expression) return result;
    ATOLL_TRY(result.expression_, Expression::compile(field, pattern.text));
    return result;
}

Status Pattern::find_matches(std::string_view text, std::vector<Match>& matches) const {
    if (expression_) return expression_->find_matches(text, matches);
    for (std::size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, at + text_.size()))
        matches.push_back({at, at + text_.size()});
    return {};
}

}  // namespace atl::tokenizer
