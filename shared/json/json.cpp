#include "shared/json/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "shared/base/spelling.h"
#include "shared/json/bounded.h"
#include "shared/json/digits.h"

namespace atl::json {
namespace {

// Builds the value while it is parsed, so that a text that is too deep or repeats a key is refused where that happens.
class StrictBuilder final : public nlohmann::json_sax<Json> {
  public:
    StrictBuilder(int depth_max, std::size_t values_max, bool keep_digits = false)
        : depth_max_(static_cast<std::size_t>(depth_max)), values_max_(values_max), keep_digits_(keep_digits) {}

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t& text) override {
        const bool is_integer = text.find_first_of(".eE") == string_t::npos;
        return keep_digits_ && is_integer ? add(text) : add(value);
    }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t&) override { return fail("binary values are not JSON"); }
    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }

    bool key(string_t& name) override {
        if (stack_.back()->contains(name)) return fail("repeated key \"" + name + "\"");
        key_ = std::move(name);
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
        // nlohmann's text is "[json.exception.parse_error.101] parse error at line 1, column 2: …".
        std::string_view text = error.what();
        if (const auto end = text.find("] "); end != std::string_view::npos) text.remove_prefix(end + 2);
        // What follows quotes the text, which may be nobody else's to read.
        text = text.substr(0, text.find("; last read: "));
        return fail(text.starts_with("parse error") ? std::string(text)
                                                    : std::string(text) + " at byte " + std::to_string(position));
    }

    Json& root() { return root_; }
    const std::string& error() const { return error_; }

  private:
    Json* place(Json value) {
        if (stack_.empty()) return &(root_ = std::move(value));
        Json& parent = *stack_.back();
        if (parent.is_array()) return &parent.emplace_back(std::move(value));
        return &(parent[key_] = std::move(value));
    }
    bool add(Json value) {
        if (!count()) return false;
        place(std::move(value));
        return true;
    }
    bool count() { return ++values_ <= values_max_ || fail("more than " + std::to_string(values_max_) + " values"); }
    bool open(Json value) {
        if (!count()) return false;
        if (stack_.size() >= depth_max_) return fail("more than " + std::to_string(depth_max_) + " levels");
        stack_.push_back(place(std::move(value)));
        return true;
    }
    bool close() {
        stack_.pop_back();
        return true;
    }
    bool fail(std::string why) {
        error_ = std::move(why);
        return false;
    }

    std::size_t depth_max_;
    std::size_t values_max_;
    bool keep_digits_;  // of integers that 64 bits cannot hold
    std::size_t values_ = 0;
    Json root_;
    std::vector<Json*> stack_;  // the open objects and arrays; stable, as only the innermost one grows
    std::string key_;
    std::string error_;
};

Result<Json> build(std::string_view text, StrictBuilder builder) {
    if (!Json::sax_parse(text, &builder, Json::input_format_t::json, /*strict=*/true))
        return unreadable("not valid JSON: " + builder.error());
    return std::move(builder.root());
}

const Json& null_value() {
    static const Json value;
    return value;
}

// A value as it may be quoted in a message: short, one line, always valid UTF-8.
std::string shown(const Json& value) {
    constexpr std::size_t kLengthMax = 60;
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > kLengthMax) text = text.substr(0, kLengthMax) + "…";
    return text;
}

std::string shown_number(double value) {
    return Json(value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value))
                                                                     : Json(value))
        .dump();
}

// "; there is X", a member that nobody has read and that is nearly the missing one; empty if there is none.
std::string near_member(const Json& object, const std::vector<std::string>& read, const char* missing) {
    std::vector<std::string> unread;
    for (const auto& member : object.items())
        if (std::find(read.begin(), read.end(), member.key()) == read.end()) unread.push_back(member.key());
    const std::string near = nearest(missing, unread);
    return near.empty() ? "" : "; there is \"" + near + "\"";
}

}  // namespace

Result<Json> parse(std::string_view text, int depth_max) {
    return parse_bounded(text, SIZE_MAX, depth_max);
}

Result<Json> parse_bounded(std::string_view text, std::size_t values_max, int depth_max) {
    return build(text, StrictBuilder(depth_max, values_max));
}

Result<Json> parse_keeping_digits(std::string_view text) {
    return build(text, StrictBuilder(64, SIZE_MAX, /*keep_digits=*/true));
}

ObjectReader::ObjectReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (object_.is_object()) return;
    status_ = invalid_argument(
        path_, (path_.empty() ? "the document must be an object, got " : "must be an object, got ") + shown(object_));
}

std::string ObjectReader::field(const char* key) const {
    return path_.empty() ? key : path_ + "." + key;
}

void ObjectReader::fail(const char* key, std::string message) {
    if (status_.ok()) status_ = invalid_argument(field(key), std::move(message));
}

const Json* ObjectReader::find(const char* key, bool required, const char* type_name,
                               bool (Json::*is_type)() const noexcept) {
    seen_.emplace_back(key);
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) {
        if (required) fail(key, std::string("is required (") + type_name + ")" + near_member(object_, seen_, key));
        return nullptr;
    }
    if (is_type != nullptr && !((*found).*is_type)()) {
        fail(key, std::string("must be ") + type_name + ", got " + shown(*found));
        return nullptr;
    }
    return &*found;
}

std::string ObjectReader::required_string(const char* key) {
    const Json* value = find(key, true, "a string", &Json::is_string);
    return value != nullptr ? value->get<std::string>() : std::string();
}

std::string ObjectReader::string_or(const char* key, std::string fallback) {
    const Json* value = find(key, false, "a string", &Json::is_string);
    return value != nullptr ? value->get<std::string>() : std::move(fallback);
}

std::int64_t ObjectReader::read_integer(const char* key, bool required, std::int64_t fallback, std::int64_t min,
                                        std::int64_t max) {
    const std::string type = "an integer from " + std::to_string(min) + " to " + std::to_string(max);
    const Json* value = find(key, required, type.c_str(), &Json::is_number_integer);
    if (value == nullptr) return fallback;
    const bool wraps = value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX;
    const auto number = value->get<std::int64_t>();
    if (!wraps && number >= min && number <= max) return number;
    fail(key, "must be " + type + ", got " + shown(*value));
    return fallback;
}

std::int64_t ObjectReader::required_integer(const char* key, std::int64_t min, std::int64_t max) {
    return read_integer(key, true, min, min, max);
}

std::int64_t ObjectReader::integer_or(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max) {
    return read_integer(key, false, fallback, min, max);
}

double ObjectReader::number_or(const char* key, double fallback, double min, double max) {
    const std::string type = "a number from " + shown_number(min) + " to " + shown_number(max);
    const Json* value = find(key, false, type.c_str(), &Json::is_number);
    if (value == nullptr) return fallback;
    const auto number = value->get<double>();
    if (number >= min && number <= max) return number;
    fail(key, "must be " + type + ", got " + shown(*value));
    return fallback;
}

bool ObjectReader::boolean_or(const char* key, bool fallback) {
    const Json* value = find(key, false, "true or false", &Json::is_boolean);
    return value != nullptr ? value->get<bool>() : fallback;
}

std::string ObjectReader::one_of(const char* key, std::initializer_list<std::string_view> choices,
                                 std::string_view fallback) {
    std::string type = "one of";
    const char* separator = " ";
    for (const auto choice : choices) {
        type += separator + ("\"" + std::string(choice) + "\"");
        separator = ", ";
    }
    const Json* value = find(key, fallback.empty(), type.c_str(), &Json::is_string);
    if (value == nullptr) return std::string(fallback);
    auto text = value->get<std::string>();
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
    fail(key, "must be " + type + ", got " + shown(*value));
    return std::string(fallback);
}

const Json& ObjectReader::object_or_null(const char* key) {
    const Json* value = find(key, false, "an object", &Json::is_object);
    return value != nullptr ? *value : null_value();
}

const Json& ObjectReader::array_or_null(const char* key) {
    const Json* value = find(key, false, "an array", &Json::is_array);
    return value != nullptr ? *value : null_value();
}

const Json& ObjectReader::required_object(const char* key) {
    const Json* value = find(key, true, "an object", &Json::is_object);
    return value != nullptr ? *value : null_value();
}

const Json& ObjectReader::required_array(const char* key) {
    const Json* value = find(key, true, "an array", &Json::is_array);
    return value != nullptr ? *value : null_value();
}

const Json& ObjectReader::any_or_null(const char* key) {
    const Json* value = find(key, false, "a value", nullptr);
    return value != nullptr ? *value : null_value();
}

void ObjectReader::allow_unknown() {
    if (!object_.is_object()) return;
    for (const auto& member : object_.items()) seen_.push_back(member.key());
}

Status ObjectReader::finish() {
    if (!status_.ok()) return status_;
    for (const auto& [name, value] : object_.items()) {
        if (std::find(seen_.begin(), seen_.end(), name) != seen_.end()) continue;
        fail(name.c_str(), "unknown field" + did_you_mean(name, seen_));
        break;
    }
    return status_;
}

}  // namespace atl::json
