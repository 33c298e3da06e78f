#pragma once

#include <string>
#include <vector>

#include "shared/json/json.h"

namespace atl::service {

// For tests: what in `value` does not fit a schema of an OpenAPI 3.1 document, one sentence each; `where` names the
// value in them. Of JSON Schema it knows what our documents use, and says so of any other keyword. Stricter than JSON
// Schema: a member that the schema of an object with properties does not describe is a fault.
std::vector<std::string> schema_faults(const json::Json& document, const json::Json& schema, const json::Json& value,
                                       const std::string& where);

// The object itself, or what its $ref leads to in the document; null when nothing is there.
const json::Json* resolve_reference(const json::Json& document, const json::Json& object);

}  // namespace atl::service
