#include "trainer/model/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

// The memory of a generation, laid out once: caches of all layers, activations between blocks, logits, scratch.
struct Session {
    std::vector<LayerCache> caches;
    Tensor input_ids, positions, rope_table, hidden, logits, workspace;
};

std::int64_t workspace_bytes(const Model& model, const kernels::Backend& backend, std::int64_t prompt,
                             std::int64_t keys_max) {
    std::int64_t bytes = 0;
    for (const auto& block : model.blocks) {
        bytes = std::max(bytes, block->infer_workspace_bytes(backend, {1, prompt}, keys_max));
    }
    return bytes;
}

Session lay_out(Arena& arena, const Model& model, const kernels::Backend& backend, std::int64_t prompt,
                std::int64_t keys_max) {
    const ModelConfig& config = model.config;
    const auto cut = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
        return arena.allocate(Category::kWorkspace, dtype, shape);
    };
    Session session;
    for (std::size_t block = 0; block < model.blocks.size(); ++block) {
        const bool is_layer = block > 0 && block + 1 < model.blocks.size();
        const std::int64_t width = config.num_key_value_heads * config.head_dim;
        LayerCache cache;
        if (is_layer) {
            cache.keys = cut(DType::kF32, {keys_max, width});
            cache.values = cut(DType::kF32, {keys_max, width});
        }
        session.caches.push_back(cache);
    }
    session.input_ids = cut(DType::kI32, {1, prompt});
    session.positions = cut(DType::kI32, {1, prompt});
    session.rope_table = cut(DType::kF32, {keys_max, config.head_dim});
    session.hidden = cut(DType::kF32, {prompt, config.hidden_size});
    session.logits = cut(DType::kF32, {1, config.vocab_size});
    session.workspace = cut(DType::kF32, {workspace_bytes(model, backend, prompt, keys_max) / 4});
    return session;
}

// Runs the tokens after `past` others; session.logits are those of what follows the last.
void step(const Model& model, kernels::Backend& backend, WeightSource& weights, Session& session,
          std::span<const std::int32_t> tokens, std::int64_t past) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    std::vector<std::int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(past));
    const auto row = [&](const Tensor& storage) { return Tensor(storage.data(), DType::kI32, {1, count}); };
    Batch batch{.shape = {1, count},
                .input_ids = row(session.input_ids),
                .targets = {},
                .positions = row(session.positions),
                .segment_starts = {},
                .rope_table = session.rope_table};
    backend.copy_from_host(tokens.data(), batch.input_ids);
    backend.copy_from_host(positions.data(), batch.positions);
    Arena workspace =
        Arena::borrowing(static_cast<std::byte*>(session.workspace.data()), session.workspace.byte_count());
    const Context context{.backend = backend, .workspace = workspace, .batch = batch};
    const Tensor hidden = session.hidden.row_range(0, count);
    std::vector<GroupView> views;
    for (std::size_t index = 0; index < model.blocks.size(); ++index) {
        const Block& block = *model.blocks[index];
        views.clear();
        for (const std::size_t group : block.groups()) views.emplace_back(model.groups[group], weights.weights(group));
        const bool is_head = index + 1 == model.blocks.size();
        block.infer(context, views, hidden, is_head ? session.logits : hidden, session.caches[index]);
    }
}

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
    const auto length = static_cast<std::int64_t>(prompt.size()) + options.tokens_max;
    if (length > config.max_position_embeddings) {
        return invalid_argument("max-tokens", "prompt and new tokens are " + std::to_string(length) +
                                                  ", the model's context is " +
                                                  std::to_string(config.max_position_embeddings));
    }
    return {};
}

}  // namespace

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
    const auto weight_of = [&](std::int32_t id) { return weights[static_cast<std::size_t>(id)]; };
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double kept = 0.0;
    std::size_t count = 0;
    while (count < order.size() && (count == 0 || kept < top_p * total)) kept += weight_of(order[count++]);
    double left = draw * kept;
    for (std::size_t at = 0; at + 1 < count; ++at) {
        left -= weight_of(order[at]);
        if (left < 0.0) return order[at];
    }
    return order[count - 1];
}

Status generate(const Model& model, kernels::Backend& backend, WeightSource& weights,
                std::span<const std::int32_t> prompt, const GenerateOptions& options,
                const std::function<bool(std::int32_t)>& on_token) {
    ATOLL_RETURN_IF_ERROR(check_prompt(model.config, prompt, options));
    const auto prompt_count = static_cast<std::int64_t>(prompt.size());
    const std::int64_t keys_max = prompt_count + options.tokens_max;
    Arena measured = Arena::measuring();
    lay_out(measured, model, backend, prompt_count, keys_max);
    ATOLL_TRY(tensor::Memory memory, backend.allocate(measured.peak_bytes()));
    Arena arena(std::move(memory));
    Session session = lay_out(arena, model, backend, prompt_count, keys_max);
    backend.copy_from_host(make_rope_table(model.config, keys_max).data(), session.rope_table);

    std::mt19937_64 random(options.seed);
    std::vector<float> logits(static_cast<std::size_t>(model.config.vocab_size));
    std::vector<std::int32_t> next(prompt.begin(), prompt.end());
    std::int64_t past = 0;
    for (std::int64_t made = 0; made < options.tokens_max; ++made) {
        step(model, backend, weights, session, next, past);
        past += static_cast<std::int64_t>(next.size());
        backend.copy_to_host(session.logits, logits.data());
        const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
        const std::int32_t token = sample_token(logits, options.temperature, options.top_p, draw);
        const auto& ends = model.config.eos_token_ids;
        if (std::find(ends.begin(), ends.end(), token) != ends.end() || !on_token(token)) break;
        next.assign(1, token);
    }
    return {};
}

}  // namespace atl::model
