#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::json {

using Json = nlohmann::json;

// Strict: UTF-8, no comments, no trailing bytes, at most `depth_max` levels, no repeated key in an object.
Result<Json> parse(std::string_view text, int depth_max = 64);

// Reads the members of one JSON object and reports the first thing wrong by its full field name ("strategy.name").
// Every member must be read or allowed: finish() names the first unknown one. Errors are sticky: after one, readers
// return defaults, so that a parser is straight-line code followed by one `finish()`. A member that is null counts as
// absent. Borrows the object. Described, an error is `rounds: must be an integer from 1 to 10000, got "ten"`.
//
//   ObjectReader reader(json);
//   spec.name = reader.required_string("name");
//   spec.rounds = reader.integer_or("rounds", 1, /*min=*/1, /*max=*/10000);
//   ATOLL_RETURN_IF_ERROR(reader.finish());
class ObjectReader {
  public:
    explicit ObjectReader(const Json& object, std::string path = "");
    explicit ObjectReader(Json&& object, std::string path = "") = delete;

    std::string required_string(const char* key);
    std::string string_or(const char* key, std::string fallback);
    std::int64_t required_integer(const char* key, std::int64_t min, std::int64_t max);
    std::int64_t integer_or(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max);
    double number_or(const char* key, double fallback, double min, double max);
    bool boolean_or(const char* key, bool fallback);
    // An empty fallback makes the member required.
    std::string one_of(const char* key, std::initializer_list<std::string_view> choices, std::string_view fallback);
    // The member itself, null when absent; for nested objects and arrays. required_* report its absence.
    const Json& object_or_null(const char* key);
    const Json& array_or_null(const char* key);
    const Json& required_object(const char* key);
    const Json& required_array(const char* key);
    const Json& any_or_null(const char* key);

    std::string field(const char* key) const;  // the full name of a member, for messages
    // Reports a fault that the caller found in a member: fail("lr", "must be above 0").
    void fail(const char* key, std::string message);
    // For what other services send: members that a newer sender added are no fault.
    void allow_unknown();
    Status finish();

  private:
    const Json* find(const char* key, bool required, const char* type_name, bool (Json::*is_type)() const noexcept);
    std::int64_t read_integer(const char* key, bool required, std::int64_t fallback, std::int64_t min,
                              std::int64_t max);
    const Json& object_;
    std::string path_;
    Status status_;
    std::vector<std::string> seen_;
};

}  // namespace atl::json
