#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::prompt {

// The text of one row, and parts of it: [begin, end) in bytes, in order.
struct Document {
    struct Range {
        std::size_t begin = 0;
        std::size_t end = 0;
    };
    std::string text;
    std::vector<Range> answers;   // what the template marks as such
    std::vector<Range> specials;  // each is a special token that a chat template (chat_template.h) put there
};

// A prompt template such as "scrivi un seguente documento:: {{text}}": a name in double braces stands for that field of
// a JSON object. What stands between {{#answer}} and {{/answer}} is what a model shall learn to write:
// "{{dialogue}}\n{{#answer}}{{summary}}{{/answer}}". Expansion is one pass: braces inside a field's text stay as they
// are.
class Template {
  public:
    // kInvalidArgument: an unclosed "{{", an empty name, no field at all, answers that are not closed or within others.
    static Result<Template> parse(std::string_view text);

    // The document of one row. A field may be a string, a number or a boolean. kInvalidArgument names the field that is
    // missing, with some that the row has, or of another type; `where` ("file:line") begins the message.
    Result<Document> render(const nlohmann::json& row, std::string_view where) const;

    const std::string& text() const { return text_; }
    std::vector<std::string> fields() const;
    bool has_answer() const;

    enum class Kind { kText, kField, kAnswerBegin, kAnswerEnd };
    struct Part {
        Kind kind = Kind::kText;
        std::string text;  // the literal text, or the field's name
    };
    const std::vector<Part>& parts() const { return parts_; }

  private:
    static Result<Part> parse_braces(std::string_view name, bool in_answer, const std::string& whole);
    std::string text_;
    std::vector<Part> parts_;
};

}  // namespace atl::prompt
