#pragma once

#include "shared/model_config/model_config.h"

// What config.json says, under the names that the blocks use.
namespace atl::model {

using model_config::Activation;
using model_config::Architecture;
using model_config::ModelConfig;
using model_config::NormKind;
using model_config::Positions;
using model_config::RopeConfig;
using model_config::RopeKind;

}  // namespace atl::model
