#pragma once

#include <string>

#include "shared/adapter/adapter.h"
#include "shared/base/result.h"
#include "trainer/model/block.h"

namespace atl::model {

using adapter::LoraOptions;

// A parameter's module: its name without ".weight".
std::string module_name(const Parameter& parameter);

struct Model;
// Freezes all units of the model and gives each block its adapters: units of their own, after the others.
// kInvalidArgument names a target that no linear answers to. A head that is the embedding's matrix is none.
Status add_adapters(Model& model, const LoraOptions& options);

}  // namespace atl::model
