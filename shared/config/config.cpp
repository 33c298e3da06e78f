#include "shared/config/config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "shared/base/file.h"

namespace atl::config {
namespace {

// Carries the first fault out of the recursion; caught in load().
class Fault : public std::runtime_error {
  public:
    Fault(const YAML::Mark& mark, const std::string& what)
        : std::runtime_error(what), line(mark.is_null() ? 0 : mark.line + 1) {}
    int line;
};

std::string with_environment(std::string text, const YAML::Mark& mark) {
    for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at)) {
        if (at > 0 && text[at - 1] == '$') {
            text.erase(at - 1, 1);
            at += 1;
            continue;
        }
        const std::size_t end = text.find('}', at);
        if (end == std::string::npos) throw Fault(mark, "\"${\" without \"}\"");
        const std::string name = text.substr(at + 2, end - at - 2);
        const char* value = std::getenv(name.c_str());
        if (value == nullptr) throw Fault(mark, "the environment variable " + name + " is not set");
        text.replace(at, end + 1 - at, value);
        at += std::string_view(value).size();  // what a variable holds is not expanded again
    }
    return text;
}

template <class Number>
bool parse_number(std::string_view text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

// The core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), without octal, hexadecimal, .inf and
// .nan.
json::Json plain_scalar(const std::string& text) {
    if (text.empty() || text == "~" || text == "null") return nullptr;
    if (text == "true") return true;
    if (text == "false") return false;
    std::int64_t integer = 0;
    if (parse_number(text, integer)) return integer;
    double number = 0;
    if (parse_number(text, number) && std::isfinite(number)) return number;
    return text;
}

json::Json convert(const YAML::Node& node);

json::Json convert_map(const YAML::Node& node) {
    json::Json object = json::Json::object();
    for (const auto& member : node) {
        if (!member.first.IsScalar()) throw Fault(member.first.Mark(), "a key must be plain text");
        const auto& key = member.first.Scalar();
        if (object.contains(key)) throw Fault(member.first.Mark(), "repeated key \"" + key + "\"");
        object[key] = convert(member.second);
    }
    return object;
}

json::Json convert(const YAML::Node& node) {
    if (node.IsMap()) return convert_map(node);
    if (node.IsSequence()) {
        json::Json array = json::Json::array();
        for (const auto& item : node) array.push_back(convert(item));
        return array;
    }
    if (!node.IsScalar()) return nullptr;
    const std::string text = with_environment(node.Scalar(), node.Mark());
    return node.Tag() == "!" ? json::Json(text) : plain_scalar(text);  // "!" is how yaml-cpp marks quotes
}

// With "$${" for "${".
std::string without_variables(std::string text) {
    for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at + 3))
        text.insert(at, 1, '$');
    return text;
}

// As a reader takes it for the same text: where it could be read as something else, in quotes.
std::string scalar_text(const json::Json& value) {
    if (!value.is_string()) return value.dump();
    const std::string text = without_variables(value.get<std::string>());
    const auto is_plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '/' || c == '.' || c == '-';
    };
    const bool begins_plainly =
        !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/');
    // Other readers take more words for booleans.
    static const std::set<std::string, std::less<>> kWords = {"true", "false", "null", "yes", "no",
                                                              "on",   "off",   "y",    "n"};
    std::string small = text;
    for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (begins_plainly && std::all_of(text.begin(), text.end(), is_plain) && !kWords.contains(small)) return text;
    return json::Json(text).dump();
}

// A text of several lines that a block can hold as it is.
bool is_block(const json::Json& value) {
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    if (text.find('\n') == std::string::npos || !text.ends_with('\n') || text.ends_with("\n\n") || text[0] == ' ' ||
        text[0] == '\n')
        return false;
    return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c == '\n' || (c >= ' ' && c < 127); });
}

std::string block_text(const std::string& given, const std::string& indent) {
    const std::string text = without_variables(given);
    std::string block = " |\n";
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        const std::string line = text.substr(begin, end - begin);
        block += line.empty() ? "\n" : indent + line + "\n";
        begin = end + 1;
    }
    return block;
}

// What comes behind "KEY:".
std::string value_text(const json::Json& value, const std::string& indent) {
    if (value.is_object() && !value.empty()) {
        std::string text = "\n";
        for (const auto& [key, member] : value.items())
            text += indent + scalar_text(key) + ":" + value_text(member, indent + "  ");
        return text;
    }
    if (value.is_object()) return " {}\n";
    if (value.is_array()) {
        std::string text = " [";
        for (const auto& item : value)
            text += (text.size() > 2 ? ", " : "") +
                    (item.is_structured() ? without_variables(item.dump()) : scalar_text(item));
        return text + "]\n";
    }
    return is_block(value) ? block_text(value.get<std::string>(), indent) : " " + scalar_text(value) + "\n";
}

Error error_at(const std::string& name, int line, const std::string& what) {
    const std::string where = name + (line > 0 ? ":" + std::to_string(line) : "");
    return invalid_argument(name, where + ": " + what);
}

}  // namespace

std::string to_yaml(const json::Json& object) {
    std::string text;
    for (const auto& [key, value] : object.items()) text += scalar_text(key) + ":" + value_text(value, "  ");
    return text;
}

Result<json::Json> load(const std::filesystem::path& file) {
    ATOLL_TRY(const std::string text, read_file(file));
    return parse(text, file.string());
}

Result<json::Json> parse(const std::string& text, const std::string& name) {
    try {
        return convert(YAML::Load(text));
    } catch (const Fault& fault) {
        return error_at(name, fault.line, fault.what());
    } catch (const YAML::Exception& exception) {
        return error_at(name, exception.mark.is_null() ? 0 : exception.mark.line + 1, exception.msg);
    }
}

}  // namespace atl::config
