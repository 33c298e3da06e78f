#include "trainer/data/template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace atl::data {
namespace {

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

Result<Template> Template::parse(std::string_view text) {
    Template result;
    result.text_ = text;
    while (!text.empty()) {
        const auto open = text.find("{{");
        if (open != 0) result.parts_.push_back({false, std::string(text.substr(0, open))});
        if (open == std::string_view::npos) break;
        const auto close = text.find("}}", open);
        if (close == std::string_view::npos)
            return invalid_argument("template", "the template has \"{{\" without \"}}\": " + result.text_);
        const std::string_view name = trimmed(text.substr(open + 2, close - open - 2));
        if (name.empty()) return invalid_argument("template", "the template has {{}} without a name: " + result.text_);
        result.parts_.push_back({true, std::string(name)});
        text.remove_prefix(close + 2);
    }
    if (result.fields().empty())
        return invalid_argument("template", "the template names no field, such as {{text}}: " + result.text_);
    return result;
}

Result<std::string> Template::render(const nlohmann::json& row, std::string_view where) const {
    const auto bad = [&](const std::string& what) {
        return invalid_argument(std::string(where), std::string(where) + ": " + what);
    };
    if (!row.is_object()) return bad("the row is no JSON object");
    std::string document;
    for (const Part& part : parts_) {
        if (!part.is_field) {
            document += part.text;
            continue;
        }
        const auto value = row.find(part.text);
        if (value == row.end()) return bad("the row has no field \"" + part.text + "\", which the template names");
        if (value->is_string()) {
            document += value->get_ref<const std::string&>();
        } else if (value->is_number() || value->is_boolean()) {
            document += value->dump();
        } else {
            return bad("the field \"" + part.text + "\" is neither a string, a number nor a boolean");
        }
    }
    return document;
}

std::vector<std::string> Template::fields() const {
    std::vector<std::string> fields;
    for (const Part& part : parts_)
        if (part.is_field && std::find(fields.begin(), fields.end(), part.text) == fields.end())
            fields.push_back(part.text);
    return fields;
}

}  // namespace atl::data
