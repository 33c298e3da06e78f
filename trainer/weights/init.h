#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "shared/base/result.h"
#include "trainer/weights/load.h"
#include "trainer/weights/save.h"

namespace atl::weights {

// The command `init`: a model directory with random weights, for pretraining.
struct InitOptions {
    std::filesystem::path config;     // a config.json
    std::filesystem::path tokenizer;  // a directory whose tokenizer files are copied; empty: none
    std::filesystem::path out;
    std::uint64_t seed = 0;
    std::optional<DType> dtype;  // absent: config.json's dtype or torch_dtype, fp32 if it has neither
};

// The same config and seed give the same bytes on every machine. Warns of a tokenizer with far fewer ids than the
// config's vocab_size. kInvalidArgument: a config that the model refuses, no tokenizer, or one with more ids than
// vocab_size. kInsufficientStorage, naming --out: there is no room for it. An error leaves what was at `out`.
Result<ModelSize> init_model(const InitOptions& options);

}  // namespace atl::weights
