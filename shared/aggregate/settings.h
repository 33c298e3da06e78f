#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/aggregate/aggregator.h"
#include "shared/base/result.h"
#include "shared/json/json.h"

namespace atl::aggregate {

// Tensors of equal names and shapes may belong to models that compute differently: their mean would be no model. These
// look at the settings beside the tensors, config.json and adapter_config.json. What says nothing of the computation
// (dtype, notes, paths, versions) may differ.

// The first key whose values are not the same in two objects; empty: none.
std::string differing_model_setting(const json::Json& a, const json::Json& b);
std::string differing_adapter_setting(const json::Json& a, const json::Json& b);

// What a strategy of adapters makes of them.
enum class LoraScales { kMustAgree, kMayDiffer };

// kInvalidArgument, naming file, key and both values, when a directory's settings differ from the first one's. A file
// that is missing, or is no object, is not compared. kMayDiffer: ranks and alphas need not be the same.
Status check_settings(const std::vector<std::filesystem::path>& directories,
                      LoraScales scales = LoraScales::kMustAgree);

// That of an adapter_config.json. kInvalidArgument naming the key where more than that says what the adapter adds.
Result<LoraScale> parse_lora_scale(const json::Json& config);
Result<LoraScale> read_lora_scale(const std::filesystem::path& directory);

}  // namespace atl::aggregate
