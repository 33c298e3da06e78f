#pragma once

#include <cstdint>
#include <optional>

#include "trainer/model/lora.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/load.h"

namespace atl::checkpoint {

// The adapters of a run: trained on a frozen model, or evaluated with it.
struct AdapterSource {
    model::LoraOptions options;
    std::optional<weights::WeightReader> weights;  // absent: new ones, from the seed
    weights::AdapterBase trained_on;               // of those in `weights`
    std::uint64_t seed = 0;
};

}  // namespace atl::checkpoint
