#include "shared/service/settings_reader.h"

#include <fmt/format.h>

#include "shared/service/names.h"

namespace atl::service {
namespace {

constexpr const char* kAddress = "a URL";

constexpr std::int64_t kNoBound = std::int64_t{1} << 60;  // a largest value that only keeps sums from overflowing

std::string range(std::int64_t min, std::int64_t max) {
    return max < kNoBound ? fmt::format("{} to {}", min, max) : fmt::format("{} or more", min);
}

}  // namespace

std::string SettingsReader::required_text(const char* key, std::string meaning) {
    settings_.push_back({key, "text", "", std::move(meaning)});
    return reader_.required_string(key);
}

std::string SettingsReader::text(const char* key, const std::string& fallback, std::string shown, std::string meaning) {
    settings_.push_back({key, "text", std::move(shown), std::move(meaning)});
    return reader_.string_or(key, fallback);
}

std::string SettingsReader::required_address(const char* key, std::string meaning) {
    settings_.push_back({key, kAddress, "", std::move(meaning)});
    return required_web_address(reader_, key);
}

std::string SettingsReader::address(const char* key, const std::string& fallback, std::string shown,
                                    std::string meaning) {
    settings_.push_back({key, kAddress, std::move(shown), std::move(meaning)});
    std::string value = reader_.string_or(key, fallback);
    if (!value.empty() && !is_web_address(value))
        reader_.fail(key, "must be a URL such as https://host:7443/store; leave it empty if there is none");
    return value;
}

std::int64_t SettingsReader::integer(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max,
                                     std::string meaning) {
    return integer(key, fallback, min, max, std::to_string(fallback), std::move(meaning));
}

std::int64_t SettingsReader::integer(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max,
                                     std::string shown, std::string meaning) {
    settings_.push_back({key, range(min, max), std::move(shown), std::move(meaning)});
    return reader_.integer_or(key, fallback, min, max);
}

std::int64_t SettingsReader::required_integer(const char* key, std::int64_t min, std::int64_t max,
                                              std::string meaning) {
    settings_.push_back({key, range(min, max), "", std::move(meaning)});
    return reader_.required_integer(key, min, max);
}

std::string SettingsReader::one_of(const char* key, std::initializer_list<std::string_view> choices,
                                   std::string_view fallback, std::string meaning) {
    settings_.push_back({key, fmt::format("{}", fmt::join(choices, ", ")), std::string(fallback), std::move(meaning)});
    return reader_.one_of(key, choices, fallback);
}

std::string SettingsReader::topic_prefix() {
    return text("topic_prefix", "", "none", "prefix for Kafka topic names, for tests");
}

std::string describe_settings(const std::string& heading, std::span<const Setting> settings) {
    std::string text = "## " + heading + "\n\n| key | values | default | meaning |\n|---|---|---|---|\n";
    for (const Setting& one : settings)
        text += fmt::format("| `{}` | {} | {} | {} |\n", one.key, one.values,
                            one.fallback.empty() ? "required" : one.fallback, one.meaning);
    return text + "\n";
}

}  // namespace atl::service
