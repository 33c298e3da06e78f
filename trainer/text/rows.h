#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"
#include "trainer/text/record_reader.h"

namespace atl::text {

// Gets a row, a JSON object where the input is right, and its place for error messages ("file:line").
using UseRow = std::function<Status(const nlohmann::json& row, const std::string& where)>;

// Calls `use` for each row of a block of the file `path`: the object of a line or of an element, a table's record by
// its columns' names, {"text": …} for a text. Blank lines are passed over. `keep_digits`: integers that 64 bits cannot
// hold become texts (json::parse_keeping_digits). The first error ends it; those of its own are kInvalidArgument, name
// the place and quote nothing of the texts. A pure function.
Status for_each_row(const RecordBlock& block, const std::filesystem::path& path, bool keep_digits, const UseRow& use);

}  // namespace atl::text
