#pragma once

#include <string>

#include "shared/base/result.h"

// What a user gives to be read, looked at before anything opens it. kNotFound or kInvalidArgument, of the flag: not
// given, not there, not to be read, a file where a directory is needed, or a directory of another kind.
namespace atl::train {

Status check_model_path(const std::string& path, const char* flag);
Status check_adapter_path(const std::string& path, const char* flag);
// A data directory, or a file.
Status check_data_path(const std::string& path, const char* flag);

}  // namespace atl::train
