#pragma once

#include <string>
#include <string_view>

#include "shared/json/json.h"

namespace atl::service {

// Names of facilities, datasets and models: ^[a-z0-9][a-z0-9._-]{0,62}$
bool is_name(std::string_view text);
// What is said of a text that is none.
inline constexpr const char* kNameRule =
    "must be 1 to 63 lower-case letters, digits, '.', '_' or '-', and begin with a letter or a digit";
// kInvalidArgument that names `field` unless the text is a name, and another than "newest", which stands for a version
// or a job.
Status check_name(std::string_view text, const std::string& field);
// Whether a text can name a version of a model: a tag, "newest", "round3", a digest or a beginning of it.
bool is_version_name(std::string_view text);
// What is said of a text that cannot.
inline constexpr const char* kVersionNameRule = "must be a digest or 8 characters of it, a tag, newest, or round3";
// A required member that must be a name; the reader fails otherwise.
std::string required_name(json::ObjectReader& reader, const char* key);

// Whether a text is the address of a service: http://…, https://… or, at a socket, unix:/run/a.sock:/store
bool is_web_address(std::string_view text);
// A required member that must be one; the reader fails otherwise.
std::string required_web_address(json::ObjectReader& reader, const char* key);

// True for a relative path of at most 4096 printable characters without empty, "." or ".." segments.
bool is_safe_relative_path(std::string_view path);

}  // namespace atl::service
