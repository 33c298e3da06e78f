#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"

namespace atl::cli {

// The id of the job that `given` means, out of all jobs (GET /v1/jobs): an id or 8 characters of it or more,
// "newest", or a name. Those that `subject` has submitted come first where several jobs have that name, as anybody may
// give a job any name, and for "newest". kInvalidArgument when several have that name or beginning (with their ids),
// kNotFound with the nearest name when none has.
Result<std::string> find_job(const nlohmann::json& jobs, const std::string& given, const std::string& subject);

}  // namespace atl::cli
