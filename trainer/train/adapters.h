#pragma once

#include <optional>
#include <string>

#include "shared/run_settings/run_settings.h"
#include "trainer/model_io/model_directory.h"

namespace atl::train {

using run_settings::RunConfig;

// What --adapter and the --lora flags ask for, absent when nothing. kInvalidArgument names the flag: --lora flags that
// contradict the adapter, or that mean nothing without --lora-rank.
Result<std::optional<model_io::AdapterSource>> choose_adapters(const RunConfig& config);

// One line for a user whose adapter was trained on the model in another format than this one; empty: it was not, or
// nothing says so.
std::string other_format_warning(const weights::AdapterBase& trained_on, const std::string& quantize);

}  // namespace atl::train
