#include "shared/prompt/template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "shared/base/text.h"

namespace atl::prompt {
namespace {

// A literal part of the template: \n, \t and \\, which a shell passes on as they are, become a newline, a tab and a
// backslash.
Result<std::string> unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\') {
            out += text[i];
            continue;
        }
        const char next = ++i < text.size() ? text[i] : ' ';
        if (next != 'n' && next != 't' && next != '\\')
            return invalid_argument(
                "template", "the template has a backslash that is none of \\n, \\t and \\\\: " + std::string(text));
        out += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    }
    return out;
}

// Names that many data sets have. No other is said: the first row of a table without a header holds texts, and messages
// travel to the coordinator.
constexpr std::string_view kUsualNames[] = {
    "answer", "article",  "body",     "chosen",   "completion",  "content",    "context",  "conversations",
    "dialog", "dialogue", "document", "input",    "instruction", "language",   "messages", "output",
    "prompt", "question", "response", "sentence", "source",      "summary",    "target",   "testo",
    "text",   "texte",    "texto",    "title",    "transcript",  "translation"};

std::string describe_fields(const nlohmann::json& row) {
    if (row.empty()) return "it has none";
    std::vector<std::string> names;
    for (const auto& [name, value] : row.items())
        if (std::ranges::find(kUsualNames, std::string_view(name)) != std::end(kUsualNames))
            names.push_back(in_quotes(name));
    const std::size_t others = row.size() - names.size();
    const std::string count = std::to_string(others) + (names.empty() ? "" : " more");
    if (others == 0) return "it has " + join(names);
    return "it has " + (names.empty() ? count + (others == 1 ? " other" : " others") : join(names) + " and " + count);
}

}  // namespace

Result<Template::Part> Template::parse_braces(std::string_view name, bool in_answer, const std::string& whole) {
    const auto bad = [&](const std::string& what) { return invalid_argument("template", what + ": " + whole); };
    if (name.empty()) return bad("the template has {{}} without a name");
    if (name[0] != '#' && name[0] != '/') return Part{Kind::kField, std::string(name)};
    const bool begins = name[0] == '#';
    if (name.substr(1) != "answer") return bad("{{#answer}} and {{/answer}} are the template's only marks");
    if (begins && in_answer) return bad("the template has {{#answer}} within an answer");
    if (!begins && !in_answer) return bad("the template has {{/answer}} without {{#answer}}");
    return Part{begins ? Kind::kAnswerBegin : Kind::kAnswerEnd, ""};
}

Result<Template> Template::parse(std::string_view text) {
    Template result;
    result.text_ = text;
    bool in_answer = false;
    while (!text.empty()) {
        const auto open = text.find("{{");
        if (open != 0) {
            ATOLL_TRY(std::string literal, unescaped(text.substr(0, open)));
            result.parts_.push_back({Kind::kText, std::move(literal)});
        }
        if (open == std::string_view::npos) break;
        const auto close = text.find("}}", open);
        if (close == std::string_view::npos)
            return invalid_argument("template", "the template has \"{{\" without \"}}\": " + result.text_);
        ATOLL_TRY(Part part, parse_braces(trim(text.substr(open + 2, close - open - 2)), in_answer, result.text_));
        in_answer = part.kind == Kind::kAnswerBegin || (in_answer && part.kind != Kind::kAnswerEnd);
        result.parts_.push_back(std::move(part));
        text.remove_prefix(close + 2);
    }
    if (in_answer)
        return invalid_argument("template", "the template has {{#answer}} without {{/answer}}: " + result.text_);
    if (result.fields().empty())
        return invalid_argument("template", "the template names no field, such as {{text}}: " + result.text_);
    return result;
}

Result<Document> Template::render(const nlohmann::json& row, std::string_view where) const {
    const auto bad = [&](const std::string& what) {
        return invalid_argument(std::string(where), std::string(where) + ": " + what);
    };
    if (!row.is_object()) return bad("the row is no JSON object");
    Document document;
    for (const Part& part : parts_) {
        if (part.kind == Kind::kText) document.text += part.text;
        if (part.kind == Kind::kAnswerBegin) document.answers.push_back({document.text.size(), 0});
        if (part.kind == Kind::kAnswerEnd) document.answers.back().end = document.text.size();
        if (part.kind != Kind::kField) continue;
        const auto value = row.find(part.text);
        if (value == row.end())
            return bad("the row has no field \"" + part.text + "\", which the template names; " + describe_fields(row));
        if (value->is_string()) {
            document.text += value->get_ref<const std::string&>();
        } else if (value->is_number() || value->is_boolean()) {
            document.text += value->dump();
        } else {
            return bad("the field \"" + part.text + "\" is neither a string, a number nor a boolean");
        }
    }
    return document;
}

std::vector<std::string> Template::fields() const {
    std::vector<std::string> fields;
    for (const Part& part : parts_)
        if (part.kind == Kind::kField && std::find(fields.begin(), fields.end(), part.text) == fields.end())
            fields.push_back(part.text);
    return fields;
}

bool Template::has_answer() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.kind == Kind::kAnswerBegin; });
}

}  // namespace atl::prompt
