#pragma once

#include <string_view>

namespace atl::run_settings {

// The trainer's settings as a JSON list: key, type, range, the values that there are and those that are built. A test
// of the trainer keeps it equal to the trainer's own table (trainer/train/options.cpp); dispatch checks jobs by it.
std::string_view table_json();

}  // namespace atl::run_settings
