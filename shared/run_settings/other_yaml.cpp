#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "shared/base/text.h"
#include "shared/run_settings/other_config.h"

namespace atl::run_settings {
namespace {

using json::Json;

constexpr std::size_t kYamlBytesMax = 1U << 20;
constexpr std::size_t kYamlDepthMax = 8;

struct YamlLine {
    std::size_t number = 0;  // in the file, from 1
    std::size_t indent = 0;
    std::string_view text;  // without indentation and comment
};

Error wrong_line(std::size_t number, std::string_view why) {
    return invalid_argument("", "line " + std::to_string(number) + " " + std::string(why));
}

std::string_view trimmed_end(std::string_view text) {
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
    return text;
}

// Without a comment: a '#' outside of quotes, at the start or after a space.
std::string_view without_comment(std::string_view text) {
    char quote = '\0';
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (quote != '\0') {
            if (c == quote) quote = '\0';
        } else if (c == '\'' || c == '"') {
            if (at == 0 || text[at - 1] == ' ') quote = c;
        } else if (c == '#' && (at == 0 || text[at - 1] == ' ')) {
            return trimmed_end(text.substr(0, at));
        }
    }
    return trimmed_end(text);
}

Result<std::vector<YamlLine>> split_lines(std::string_view text) {
    std::vector<YamlLine> lines;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
        const std::string_view rest = without_comment(line.substr(indent));
        if (rest.empty() || (rest == "---" && lines.empty())) continue;
        if (rest.front() == '\t') return wrong_line(number, "is indented by a tab");
        lines.push_back({number, indent, rest});
    }
    return lines;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, text) != words.end();
}

// As PyYAML's (true also as yes and on), but numbers as JSON has them.
Result<Json> parse_scalar(std::string_view text, std::size_t number) {
    if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"')) {
        const std::string_view inner = text.substr(1, text.size() - 2);
        if (text.back() != text.front() || inner.find_first_of("'\"\\") != std::string_view::npos)
            return wrong_line(number, "has nested or unclosed quotes, which are not supported");
        return Json(std::string(inner));
    }
    if (text == "{}") return Json::object();
    if (text == "[]") return Json::array();
    if (text.find_first_of("&*!|>{}[]%@`'\"") == 0) return wrong_line(number, "uses YAML that is not supported");
    if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return Json();
    if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return Json(true);
    if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return Json(false);
    std::int64_t whole = 0;
    double real = 0;
    const char *const begin = text.data(), *const end = begin + text.size();
    if (const auto [at, error] = std::from_chars(begin, end, whole); error == std::errc() && at == end)
        return Json(whole);
    if (const auto [at, error] = std::from_chars(begin, end, real);
        error == std::errc() && at == end && std::isfinite(real))
        return Json(real);
    return Json(std::string(text));
}

class YamlReader {
  public:
    explicit YamlReader(std::vector<YamlLine> lines) : lines_(std::move(lines)) {}

    Result<Json> read() {
        ATOLL_TRY(Json object, read_mapping(lines_.front().indent, 0));
        if (at_ < lines_.size()) return wrong_line(lines_[at_].number, "is indented in another way than those before");
        return object;
    }

  private:
    bool has_line(std::size_t indent) const { return at_ < lines_.size() && lines_[at_].indent == indent; }
    static bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }

    Result<Json> read_mapping(std::size_t indent, std::size_t depth) {
        if (depth > kYamlDepthMax) return wrong_line(lines_[at_].number, "is too deep");
        Json object = Json::object();
        while (has_line(indent)) {
            const YamlLine& line = lines_[at_++];
            const std::size_t colon = line.text.find(':');
            const bool ends = colon + 1 == line.text.size();
            if (is_item(line.text) || colon == 0 || colon == std::string_view::npos ||
                (!ends && line.text[colon + 1] != ' '))
                return wrong_line(line.number, "is not \"key: value\"");
            ATOLL_TRY(const Json name, parse_scalar(trimmed_end(line.text.substr(0, colon)), line.number));
            const std::string key = name.is_string() ? name.get<std::string>() : name.dump();
            if (object.contains(key)) return wrong_line(line.number, "has a key that is there already");
            ATOLL_TRY(object[key], ends ? read_below(indent, depth, line.number) : read_value(line, colon));
        }
        return object;
    }

    static Result<Json> read_value(const YamlLine& line, std::size_t colon) {
        const std::string_view value = line.text.substr(colon + 1);
        return parse_scalar(value.substr(std::min(value.find_first_not_of(' '), value.size())), line.number);
    }

    // What stands below a key without a value; null: nothing.
    Result<Json> read_below(std::size_t indent, std::size_t depth, std::size_t number) {
        if (at_ == lines_.size() || lines_[at_].indent < indent) return Json();
        if (is_item(lines_[at_].text)) return read_list(lines_[at_].indent);
        if (lines_[at_].indent == indent) return Json();
        if (depth == kYamlDepthMax) return wrong_line(number, "is too deep");
        return read_mapping(lines_[at_].indent, depth + 1);
    }

    Result<Json> read_list(std::size_t indent) {
        Json list = Json::array();
        while (has_line(indent) && is_item(lines_[at_].text)) {
            const YamlLine& line = lines_[at_++];
            const std::string_view rest = line.text.substr(1);
            const std::string_view value = rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
            if (value.find(": ") != std::string_view::npos || value.ends_with(':'))
                return wrong_line(line.number, "is a mapping in a list, which is not supported");
            ATOLL_TRY(Json item, parse_scalar(value, line.number));
            list.push_back(std::move(item));
        }
        return list;
    }

    std::vector<YamlLine> lines_;
    std::size_t at_ = 0;
};

}  // namespace

Result<Json> parse_simple_yaml(std::string_view text) {
    if (text.size() > kYamlBytesMax) return invalid_argument("", "is larger than 1 MiB");
    ATOLL_TRY(std::vector<YamlLine> lines, split_lines(text));
    if (lines.empty()) return Json::object();
    return YamlReader(std::move(lines)).read();
}

}  // namespace atl::run_settings
