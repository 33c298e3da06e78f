#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/json/json.h"

namespace atl::service {

// A key of a configuration file, as docs/reference/settings.md shows it.
struct Setting {
    std::string key;
    std::string values;    // what it may be: "1 to 256", "an address"
    std::string fallback;  // what holds without it; empty: it is required
    std::string meaning;   // one sentence without a full stop
};

// Reads the members of a configuration's object, each with its meaning: what a service reads is what the reference
// page lists.
//
//   Settings read_settings(SettingsReader& reader) {
//       return {.scrub_days = reader.integer("scrub_days", 30, 0, 3660, "days within which …; 0: never")};
//   }
//   ATOLL_TRY(const Settings settings, read_object(own, "store", read_settings));
class SettingsReader {
  public:
    explicit SettingsReader(const json::Json& object, std::string path = "") : reader_(object, std::move(path)) {}
    explicit SettingsReader(json::Json&& object, std::string path = "") = delete;

    std::string required_text(const char* key, std::string meaning);
    // `shown` says in words what the fallback is where it depends on the machine or is empty.
    std::string text(const char* key, const std::string& fallback, std::string shown, std::string meaning);
    // Of a service: http://…, https://… or unix:/run/a.sock:/store
    std::string required_address(const char* key, std::string meaning);
    // The same, or empty where it may be.
    std::string address(const char* key, const std::string& fallback, std::string shown, std::string meaning);
    std::int64_t integer(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max,
                         std::string meaning);
    std::int64_t integer(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max, std::string shown,
                         std::string meaning);
    std::int64_t required_integer(const char* key, std::int64_t min, std::int64_t max, std::string meaning);
    std::string one_of(const char* key, std::initializer_list<std::string_view> choices, std::string_view fallback,
                       std::string meaning);

    // Of Kafka topics, as every service has it.
    std::string topic_prefix();

    // For what is no setting of its own: a nested object, a fault that the caller found.
    json::ObjectReader& object() { return reader_; }
    Status finish() { return reader_.finish(); }

    // What was read so far, in its order.
    std::span<const Setting> settings() const { return settings_; }

  private:
    json::ObjectReader reader_;
    std::vector<Setting> settings_;
};

// What `read` makes of an object. kInvalidArgument naming the key ("store.root").
template <class Settings>
Result<Settings> read_object(const json::Json& object, const std::string& path, Settings (*read)(SettingsReader&)) {
    SettingsReader reader(object, path);
    Settings settings = read(reader);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return settings;
}

// The rows under a heading, as a table in Markdown.
std::string describe_settings(const std::string& heading, std::span<const Setting> settings);

}  // namespace atl::service
