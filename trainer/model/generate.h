#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shared/base/result.h"
#include "trainer/kernels/backend.h"
#include "trainer/model/model.h"

namespace atl::model {

// Lends the weights of a unit while a block runs: resident, or gathered on demand by a sharded driver.
class WeightSource {
  public:
    virtual ~WeightSource() = default;
    // The units of this block are asked for next. Blocks come in their order, over and over.
    virtual void begin_block(std::size_t) {}
    // [element_count] in any storage format; valid until the next block begins.
    virtual Tensor weights(std::size_t unit) = 0;
};

// One sequence being generated: key/value caches of all layers and the memory of a step, allocated at the start.
class Generation {
  public:
    // For steps of at most step_tokens_max tokens and tokens_max in all. The references must outlive it.
    // kResourceExhausted: not enough memory.
    static Result<Generation> start(const Model& model, kernels::Backend& backend, WeightSource& weights,
                                    std::int64_t step_tokens_max, std::int64_t tokens_max);

    // What start() would take.
    static std::int64_t need_bytes(const Model& model, kernels::Backend& backend, std::int64_t step_tokens_max,
                                   std::int64_t tokens_max);

    // Appends tokens (ids of the vocabulary) and writes the logits [V] of what follows the last.
    void step(std::span<const std::int32_t> tokens, std::span<float> logits);

  private:
    Generation(const Model& model, kernels::Backend& backend, WeightSource* weights);
    void lay_out(tensor::Arena& arena, std::int64_t step_tokens_max, std::int64_t tokens_max);

    const Model* model_;
    kernels::Backend* backend_;
    WeightSource* weights_;
    tensor::Arena memory_ = tensor::Arena::measuring();
    std::vector<LayerCache> caches_;  // one a block; only layers use theirs
    Tensor input_ids_, positions_, rope_table_, hidden_, logits_, workspace_;
    std::int64_t past_ = 0;
};

struct GenerateOptions {
    std::int64_t tokens_max = 64;
    double temperature = 0.0;  // 0: greedy
    double top_p = 1.0;        // the smallest set of tokens whose probability reaches it
    std::uint64_t seed = 0;
    // Where several ranks generate the same text: what all of them take for the token that this one chose.
    std::function<std::int32_t(std::int32_t)> agree_on_token = {};
};

// Chooses a token from logits [V]. Deterministic: `draw` in [0, 1) decides.
std::int32_t sample_token(std::span<const float> logits, double temperature, double top_p, double draw);

// kInvalidArgument: an empty prompt, an id outside the vocabulary, or more tokens than ModelConfig::length_max().
Status check_prompt(const ModelConfig& config, std::span<const std::int32_t> prompt, const GenerateOptions& options);

// Continues the prompt with a key/value cache. on_token gets every new token and returns false to stop; an end-of-
// sequence token stops as well and is not handed on. Errors are those of check_prompt().
Status generate(const Model& model, kernels::Backend& backend, WeightSource& weights,
                std::span<const std::int32_t> prompt, const GenerateOptions& options,
                const std::function<bool(std::int32_t)>& on_token);

}  // namespace atl::model
