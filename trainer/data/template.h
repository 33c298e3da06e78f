#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::data {

// A prompt template such as "scrivi un seguente documento:: {{text}}": a name in double braces stands for that field of
// a JSON object. Expansion is one pass: braces inside a field's text stay as they are.
class Template {
  public:
    // kInvalidArgument: an unclosed "{{", an empty name, or no field at all.
    static Result<Template> parse(std::string_view text);

    // The document of one row. A field may be a string, a number or a boolean. kInvalidArgument names the field that is
    // missing or of another type; `where` ("file:line") begins the message.
    Result<std::string> render(const nlohmann::json& row, std::string_view where) const;

    const std::string& text() const { return text_; }
    std::vector<std::string> fields() const;

  private:
    struct Part {
        bool is_field = false;
        std::string text;  // the literal text, or the field's name
    };
    std::string text_;
    std::vector<Part> parts_;
};

}  // namespace atl::data
