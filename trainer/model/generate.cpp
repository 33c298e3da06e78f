#include "trainer/model/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

namespace atl::model {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

Status check_prompt(const ModelConfig& config, std::span<const std::int32_t> prompt, const GenerateOptions& options) {
    if (prompt.empty()) return invalid_argument("prompt", "holds no token");
    for (const std::int32_t id : prompt) {
        if (id < 0 || id >= config.vocab_size) {
            return invalid_argument("prompt", "token " + std::to_string(id) + " is outside the vocabulary");
        }
    }
    if (options.tokens_max < 0 || !(options.temperature >= 0.0) || !(options.top_p > 0.0 && options.top_p <= 1.0)) {
        return invalid_argument("options", "need tokens_max ≥ 0, temperature ≥ 0 and 0 < top_p ≤ 1");
    }
    const auto given = static_cast<std::int64_t>(prompt.size()), length = given + options.tokens_max;
    const std::string context = ", the model's context is " + std::to_string(config.length_max()) + " (" +
                                std::string(config.length_max_key()) + ")";
    if (given > config.length_max())
        return invalid_argument("prompt", "has " + std::to_string(given) + " tokens" + context);
    if (length > config.length_max())
        return invalid_argument("max-tokens", "prompt and new tokens are " + std::to_string(length) + context);
    return {};
}

Generation::Generation(const Model& model, kernels::Backend& backend, WeightSource* weights)
    : model_(&model), backend_(&backend), weights_(weights) {}

Result<Generation> Generation::start(const Model& model, kernels::Backend& backend, WeightSource& weights,
                                     std::int64_t step_tokens_max, std::int64_t tokens_max) {
    Generation generation(model, backend, &weights);
    generation.lay_out(generation.memory_, step_tokens_max, tokens_max);
    ATOLL_TRY(tensor::Memory memory, backend.allocate(generation.memory_.peak_bytes()));
    generation.memory_ = Arena(std::move(memory));
    generation.lay_out(generation.memory_, step_tokens_max, tokens_max);
    return generation;
}

std::int64_t Generation::need_bytes(const Model& model, kernels::Backend& backend, std::int64_t step_tokens_max,
                                    std::int64_t tokens_max) {
    Generation generation(model, backend, nullptr);
    generation.lay_out(generation.memory_, step_tokens_max, tokens_max);
    return generation.memory_.peak_bytes();
}

void Generation::lay_out(Arena& arena, std::int64_t step_tokens_max, std::int64_t tokens_max) {
    const ModelConfig& config = model_->config;
    const kernels::Formats& formats = model_->formats;
    const auto cut = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
        return arena.allocate(Category::kWorkspace, dtype, shape);
    };
    caches_.assign(model_->blocks.size(), {});
    std::int64_t scratch = 0;
    for (std::size_t block = 0; block < model_->blocks.size(); ++block) {
        scratch = std::max(scratch,
                           model_->blocks[block]->infer_workspace_bytes(*backend_, {1, step_tokens_max}, tokens_max));
        if (block == 0 || block + 1 == model_->blocks.size()) continue;
        const std::int64_t width = config.num_key_value_heads * config.head_dim;
        caches_[block].keys = cut(formats.activations, {tokens_max, width});
        caches_[block].values = cut(formats.activations, {tokens_max, width});
    }
    input_ids_ = cut(DType::kI32, {1, step_tokens_max});
    positions_ = cut(DType::kI32, {1, step_tokens_max});
    rope_table_ = cut(kernels::kStatistics, {tokens_max, config.head_dim});
    hidden_ = cut(formats.residual, {step_tokens_max, config.hidden_size});
    logits_ = cut(kernels::kStatistics, {1, config.vocab_size});
    workspace_ = cut(DType::kU8, {scratch});
}

void Generation::step(std::span<const std::int32_t> tokens, std::span<float> logits) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const auto row = [&](const Tensor& storage) { return Tensor(storage.data(), DType::kI32, {1, count}); };
    const Batch batch{.shape = {1, count},
                      .input_ids = row(input_ids_),
                      .targets = {},
                      .positions = row(positions_),
                      .documents = {},
                      .by_id = {},
                      .by_position = {},
                      .rope_table = rope_table_};
    std::vector<std::int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(past_));
    backend_->copy_from_host(tokens.data(), batch.input_ids);
    backend_->copy_from_host(positions.data(), batch.positions);
    // Cached keys keep the rotation of the length at which they came, as in transformers.
    backend_->copy_from_host(make_rope_table(model_->config, past_, past_ + count).data(),
                             rope_table_.row_range(past_, count));
    Arena scratch = Arena::borrowing(static_cast<std::byte*>(workspace_.data()), workspace_.byte_count());
    const Context context{.backend = *backend_, .workspace = scratch, .batch = batch};
    const Tensor hidden = hidden_.row_range(0, count);
    std::vector<UnitView> views;
    for (std::size_t index = 0; index < model_->blocks.size(); ++index) {
        const Block& block = *model_->blocks[index];
        views.clear();
        weights_->begin_block(index);
        for (const std::size_t unit : block.units()) {
            views.emplace_back(model_->units[unit], weights_->weights(unit));
        }
        const bool is_head = index + 1 == model_->blocks.size();
        block.infer(context, views, hidden, is_head ? logits_ : hidden, caches_[index]);
    }
    past_ += count;
    backend_->copy_to_host(logits_, logits.data());
}

std::int32_t sample_token(std::span<const float> logits, double temperature, double top_p, double draw) {
    const auto largest = std::max_element(logits.begin(), logits.end());
    if (temperature <= 0.0) return static_cast<std::int32_t>(largest - logits.begin());
    std::vector<double> weights(logits.size());
    for (std::size_t id = 0; id < logits.size(); ++id) {
        weights[id] = std::exp((static_cast<double>(logits[id]) - static_cast<double>(*largest)) / temperature);
    }
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return weights[static_cast<std::size_t>(a)] > weights[static_cast<std::size_t>(b)];
    });
    const auto weight = [&](std::int32_t id) { return weights[static_cast<std::size_t>(id)]; };
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double kept = 0.0;
    std::size_t count = 0;
    while (count < order.size() && (count == 0 || kept < top_p * total)) kept += weight(order[count++]);
    double left = draw * kept;
    for (std::size_t at = 0; at + 1 < count; ++at) {
        left -= weight(order[at]);
        if (left < 0.0) return order[at];
    }
    return order[count - 1];
}

Status generate(const Model& model, kernels::Backend& backend, WeightSource& weights,
                std::span<const std::int32_t> prompt, const GenerateOptions& options,
                const std::function<bool(std::int32_t)>& on_token) {
    ATOLL_RETURN_IF_ERROR(check_prompt(model.config, prompt, options));
    const auto prompt_count = static_cast<std::int64_t>(prompt.size());
    ATOLL_TRY(Generation generation,
              Generation::start(model, backend, weights, prompt_count, prompt_count + options.tokens_max));
    std::mt19937_64 random(options.seed);
    std::vector<float> logits(static_cast<std::size_t>(model.config.vocab_size));
    std::vector<std::int32_t> next(prompt.begin(), prompt.end());
    const auto& ends = model.config.eos_token_ids;
    for (std::int64_t made = 0; made < options.tokens_max; ++made) {
        generation.step(next, logits);
        const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
        std::int32_t token = sample_token(logits, options.temperature, options.top_p, draw);
        if (options.agree_on_token) token = options.agree_on_token(token);
        if (std::find(ends.begin(), ends.end(), token) != ends.end() || !on_token(token)) break;
        next.assign(1, token);
    }
    return {};
}

}  // namespace atl::model
