#pragma once

#include <cstdint>
#include <optional>

#include "trainer/model/lora.h"
#include "trainer/train/config.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/load.h"

namespace atl::train {

// The adapters of a run: trained on a frozen model, or evaluated with it.
struct AdapterSource {
    model::LoraOptions options;
    std::optional<weights::WeightReader> weights;  // absent: new ones, from the seed
    weights::AdapterBase trained_on;               // of those in `weights`
    std::uint64_t seed = 0;
};

// What --adapter and the --lora flags ask for, absent when nothing. kInvalidArgument names the flag: --lora flags that
// contradict the adapter, or that mean nothing without --lora-rank.
Result<std::optional<AdapterSource>> adapters_of(const RunConfig& config);

// One line for a user whose adapter was trained on the model in another format than this one; empty: it was not, or
// nothing says so.
std::string other_format_warning(const weights::AdapterBase& trained_on, const std::string& quantize);

}  // namespace atl::train
