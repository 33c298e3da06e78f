#pragma once

#include <string>

namespace atl::train {

// What a run.json may say, as JSON for programs that write one: each key of `train` with its type, range, choices and
// the values that this build has. shared/run_settings/run_settings.json is this text; the services read it there.
std::string settings_table();

}  // namespace atl::train
