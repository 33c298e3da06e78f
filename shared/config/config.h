#pragma once

#include <filesystem>

#include "shared/json/json.h"

namespace atl::config {

// Reads a YAML (or JSON) file into JSON, so that the one ObjectReader checks configuration and requests alike.
// ${NAME} in a scalar is replaced by the environment's variable before its type is decided (quotes keep a number text);
// an unset one is an error that names it; "$${" stands for "${". Errors begin with "file:line: ".
Result<json::Json> load(const std::filesystem::path& file);
// The same for a text; `name` stands for the file in errors.
Result<json::Json> parse(const std::string& text, const std::string& name);

// An object as YAML that parse() reads back as it is.
std::string to_yaml(const json::Json& object);

}  // namespace atl::config
