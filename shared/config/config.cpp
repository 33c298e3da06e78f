#include "shared/config/config.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
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

Error error_at(const std::string& name, int line, const std::string& what) {
    const std::string where = name + (line > 0 ? ":" + std::to_string(line) : "");
    return invalid_argument(name, where + ": " + what);
}

}  // namespace

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
