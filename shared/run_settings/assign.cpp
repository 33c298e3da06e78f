#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/spelling.h"
#include "shared/base/text.h"
#include "shared/run_settings/other_config.h"
#include "shared/run_settings/other_words.h"
#include "shared/run_settings/run_settings.h"

namespace atl::run_settings {
namespace {

// What is known and not built yet: a value of an option, or every value but the default.
struct Unbuilt {
    std::string_view option;
    std::string_view value = {};
};
constexpr std::array<Unbuilt, 6> kUnbuilt = {
    {{"tp"}, {"pp"}, {"offload-params", "nvme"}, {"bucket-bytes"}, {"precision", "fp8"}, {"quantize", "int4"}}};

bool is_unbuilt(const Option& option, std::string_view value) {
    return std::ranges::any_of(kUnbuilt,
                               [&](const Unbuilt& one) { return one.option == option.name && one.value == value; });
}

enum class Parsed { kWell, kNot, kBeyond };  // kBeyond: a number, but not one that the type can hold

template <class T>
Parsed parse_number(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument) return Parsed::kNot;
    return error == std::errc() ? Parsed::kWell : Parsed::kBeyond;
}

std::string beyond_range(const Option& option) {
    return "is out of range: must be from " + number_text(option.min) + " to " + number_text(option.max);
}

constexpr const char* kNoWholeNumber = "is not a whole number";

// read_value() reads an option's text; it returns what is wrong with the text, nothing when it is right.
std::string read_value(const Option& option, std::string_view text, std::int64_t& value) {
    const Parsed parsed = parse_number(text, value);
    if (parsed == Parsed::kNot) return kNoWholeNumber;
    if (parsed == Parsed::kBeyond) return "is too large";
    const auto number = static_cast<double>(value);
    return number >= option.min && number <= option.max ? "" : beyond_range(option);
}

std::string read_value(const Option& option, std::string_view text, double& value) {
    const Parsed parsed = parse_number(text, value);
    if (parsed == Parsed::kNot || !std::isfinite(value)) return "is not a number";
    const bool in_range = parsed == Parsed::kWell && value >= option.min && value <= option.max;
    return in_range ? "" : beyond_range(option);
}

std::string read_value(const Option& option, std::string_view text, Interval& value) {
    if (text == kEachEpoch) {
        value = {0, true};
        return "";
    }
    value.is_epoch = false;
    const std::string fault = read_value(option, text, value.steps);
    return fault == kNoWholeNumber ? "is neither a whole number nor " + std::string(kEachEpoch) : fault;
}

std::string read_value(const Option&, std::string_view text, bool& value) {
    value = text == "true";
    return value || text == "false" ? "" : "is neither true nor false";
}

std::string read_value(const Option&, std::string_view text, std::string& value) {
    value = text;
    return "";
}

template <class Choice>
    requires std::is_enum_v<Choice>
std::string read_value(const Option&, std::string_view text, Choice& value) {
    const auto parsed = parse_choice<Choice>(text);
    value = parsed.value_or(value);
    return parsed ? "" : "is none of " + join(kWords<Choice>, ", ");
}

template <class T>
std::string read_value(const Option& option, std::string_view text, std::optional<T>& value) {
    return read_value(option, text, value.emplace());
}

// `name` is the flag or the key, for messages.
Status assign_named(RunConfig& config, const Option& option, std::string_view text, const std::string& name) {
    const auto assign_member = [&](auto member) -> std::string {
        auto value = config.*member;
        std::string fault = is_unbuilt(option, text) ? "is not built yet" : read_value(option, text, value);
        if (fault.empty() && !option.is_built() && value != RunConfig().*member) fault = "is not built yet";
        if (fault.empty()) config.*member = std::move(value);
        return fault;
    };
    const std::string fault = std::visit(assign_member, option.member);
    if (!fault.empty()) return invalid_argument(name, "'" + std::string(text) + "' " + fault);
    config.given.emplace(option.name);
    return {};
}

// What a JSON value must be and is not; empty: it has the right type.
std::string wrong_type(const Member& member, const json::Json& value) {
    if (std::holds_alternative<std::int64_t RunConfig::*>(member))
        return value.is_number_integer() ? "" : "must be a whole number";
    if (std::holds_alternative<double RunConfig::*>(member)) return value.is_number() ? "" : "must be a number";
    if (std::holds_alternative<bool RunConfig::*>(member)) return value.is_boolean() ? "" : "must be true or false";
    if (std::holds_alternative<Interval RunConfig::*>(member))
        return value.is_number_integer() || value.is_string() ? "" : R"(must be a whole number or "epoch")";
    if (value.is_string()) return "";
    return std::holds_alternative<OnOff RunConfig::*>(member) ? R"(must be "on" or "off")" : "must be a string";
}

}  // namespace

bool Option::is_built() const {
    return !is_unbuilt(*this, "");
}

Error with_keys(Error error) {
    for (std::string* text : {&error.field, &error.message}) {
        for (std::size_t at = 0; (at = text->find("--", at)) != std::string::npos;) {
            text->erase(at, 2);
            for (; at < text->size() &&
                   (std::isalnum(static_cast<unsigned char>((*text)[at])) != 0 || (*text)[at] == '-');
                 ++at)
                if ((*text)[at] == '-') (*text)[at] = '_';
        }
    }
    return error;
}

Status assign(RunConfig& config, const Option& option, std::string_view text) {
    return assign_named(config, option, text, "--" + std::string(option.name));
}

Status assign_json(RunConfig& config, const json::Json& object, Commands command) {
    for (const auto& [key, value] : object.items()) {
        std::vector<std::string> keys;
        const Option* found = nullptr;
        for (const Option& option : options()) {
            if ((option.commands & command) == 0) continue;
            keys.push_back(option.key());
            if (keys.back() == key) found = &option;
        }
        const auto has_key = [&](const Option& option) { return option.key() == key; };
        if (found == nullptr) {
            if (std::ranges::any_of(options(), has_key)) return invalid_argument(key, "is a setting of other commands");
            if (const OtherWord* other = find_other_word(key)) {
                const bool is_here = find_option(other->option, command) != nullptr;
                const Error error = invalid_argument(key, our_word(*other, is_here));
                // What is no setting is a flag alone, as --config is, and keeps its dashes.
                const bool is_flag = !other->option.empty() && find_option(other->option, kEvery) == nullptr;
                return is_flag ? error : with_keys(error);
            }
            return invalid_argument(key, "there is no such setting" + did_you_mean(key, keys));
        }
        if (std::string wrong = wrong_type(found->member, value); !wrong.empty()) return invalid_argument(key, wrong);
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        ATOLL_RETURN_IF_ERROR(assign_named(config, *found, text, key));
    }
    return {};
}

Status assign_file(RunConfig& config, const std::filesystem::path& file, Commands command) {
    const auto text = read_file(file);
    if (!text.ok()) return invalid_argument("--config", text.error().message);
    const std::string where = " (" + file.string() + ")";
    if (const auto other = recognize_config(*text))
        return invalid_argument("--config" + where, "is " + std::string(describe(other->tool)) +
                                                        ": `atoll-trainer config-from " + file.string() +
                                                        "` translates it");
    const auto object = json::parse(*text);
    if (!object.ok()) return invalid_argument("--config" + where, object.error().message);
    if (!object->is_object()) return invalid_argument("--config" + where, "a run configuration is a JSON object");
    const Status assigned = assign_json(config, *object, command);
    return assigned.ok() ? assigned : invalid_argument(assigned.error().field + where, assigned.error().message);
}

}  // namespace atl::run_settings
