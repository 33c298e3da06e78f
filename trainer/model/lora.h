#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/model/block.h"

namespace atl::model {

// Low-rank adapters (Hu et al., arXiv:2106.09685) as the peft library has them: a linear y = W x becomes
// y = W x + alpha / rank · B (A dropout(x)), where only A [rank, in] and B [out, rank] are trained.
struct LoraOptions {
    std::int64_t rank = 0;
    double alpha = 0;
    double dropout = 0;                // in [0, 1)
    std::vector<std::string> targets;  // "q_proj", "layers.0.mlp.up_proj"; or "all-linear": all but lm_head

    float scale() const { return static_cast<float>(alpha / static_cast<double>(rank)); }
    // Whether a linear gets an adapter; `module` is its full name, "model.layers.0.mlp.up_proj". A
    // target names it whole or by its last parts.
    bool covers(std::string_view module) const;
};

// A parameter's module: its name without ".weight".
std::string module_name(const Parameter& parameter);

struct Model;
// Freezes all units of the model and gives each block its adapters: units of their own, after the others.
// kInvalidArgument names a target that no linear answers to. A head that is the embedding's matrix is none.
Status add_adapters(Model& model, const LoraOptions& options);

}  // namespace atl::model
