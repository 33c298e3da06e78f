#include "trainer/parallel/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "trainer/parallel/device_scalars.h"
#include "trainer/parallel/finite.h"
#include "trainer/trace/trace.h"

namespace atl::parallel {

using tensor::Category;

Engine Engine::lay_out(const Arenas& arenas, kernels::Backend& backend, const ParameterStore& store,
                       const EngineOptions& options) {
    static std::atomic<std::uint64_t> engines = 0;
    Engine engine;
    engine.number_ = ++engines;
    engine.store_ = &store;
    engine.model_ = &store.model();
    engine.options_ = options;
    engine.first_trained_block_ = store.model().first_trained_block();
    engine.gather_ = ParameterGather::lay_out(arenas, store);
    if (options.train) engine.reduce_ = GradientReduce::lay_out(arenas, store, options.reduce);
    engine.lay_out_activations(arenas.device, backend);
    return engine;
}

void Engine::lay_out_activations(Arena& arena, kernels::Backend& backend) {
    const std::int64_t tokens = options_.largest.tokens();
    const std::int64_t channels = model_->config.hidden_size;
    const auto activation = [&] {
        return arena.allocate(Category::kActivations, model_->formats.residual, {tokens, channels});
    };
    std::int64_t workspace = 0;
    std::int64_t rest_bytes = 0;
    inputs_.emplace_back();
    if (!options_.train) saved_.resize(model_->blocks.size());
    for (std::size_t block = 0; block < model_->blocks.size(); ++block) {
        const model::Block& this_block = *model_->blocks[block];
        workspace = std::max(workspace, this_block.workspace_bytes(backend, options_.largest, options_.train));
        const model::Keep keep = keep_of_block(options_.checkpointing, *model_, block);
        rest_bytes = std::max(rest_bytes, this_block.saved_bytes(backend, options_.largest, keep).rest);
        if (block > 0) inputs_.push_back(options_.train || block < 3 ? activation() : inputs_[block - 2]);
    }
    if (options_.train) {
        lay_out_saved(arena, backend, rest_bytes);
        gradient_ = activation();
    }
    token_losses_ = arena.allocate(Category::kActivations, kernels::kStatistics, {tokens});
    std::byte* const scratch = arena.allocate_bytes(Category::kWorkspace, workspace);
    if (!arena.is_measuring()) workspace_ = Arena::borrowing(scratch, workspace);
}

void Engine::lay_out_saved(Arena& arena, const kernels::Backend& backend, std::int64_t rest_bytes) {
    std::byte* const rest = arena.allocate_bytes(Category::kActivations, rest_bytes);
    for (std::size_t block = 0; block < model_->blocks.size(); ++block) {
        const model::Keep keep = keep_of_block(options_.checkpointing, *model_, block);
        const std::int64_t kept = model_->blocks[block]->saved_bytes(backend, options_.largest, keep).kept;
        saved_.push_back({keep, arena.allocate_bytes(Category::kActivations, kept), rest});
    }
}

Tensor Engine::block_input(std::size_t block, const model::BatchShape& shape) const {
    return block == 0 || block >= inputs_.size() ? Tensor() : inputs_[block].row_range(0, shape.tokens());
}

std::span<const model::UnitView> Engine::views(std::size_t block, std::span<const Tensor> weights,
                                               std::span<const GradientReduce::UnshardedGradient> gradients) {
    views_.clear();
    const auto& units = model_->blocks[block]->units();
    for (std::size_t i = 0; i < units.size(); ++i) {
        const model::FsdpUnit& unit = model_->units[units[i]];
        const auto real = [&](const Tensor& whole) { return flat_range(whole, 0, unit.element_count); };
        const Tensor unit_weights = weights.empty() ? Tensor() : real(weights[i]);
        if (gradients.empty() || gradients[i].whole.empty()) {
            views_.emplace_back(unit, unit_weights);
        } else {
            views_.emplace_back(unit, unit_weights, real(gradients[i].whole), gradients[i].accumulate);
        }
    }
    return views_;
}

// The key has the addresses of what a block works on and what it is told to do there; what stays in its place for a
// whole run is known by the engine's and the block's number. No transfer is moved on in a region, as that is the host's
// work.
void Engine::run_block(kernels::Backend& backend, const model::Context& context, std::size_t block, Pass pass,
                       std::span<const model::UnitView> units, const model::Loss* loss,
                       const std::function<void()>& body) {
    constexpr std::array kKinds = {"forward", "recompute", "backward"};
    const trace::StreamSpan span(kernels::Stream::kCompute, kKinds[static_cast<std::size_t>(pass)],
                                 model_->blocks[block]->name());
    if (context.dropout_seed) return body();  // never the same twice
    key_.assign({number_, block, static_cast<std::uint64_t>(pass),
                 static_cast<std::uint64_t>(context.batch.shape.batch), context.batch.documents.empty(),
                 static_cast<std::uint64_t>(context.batch.documents.places()), context.input_gradient_needed,
                 loss == nullptr ? 0 : std::bit_cast<std::uint32_t>(loss->gradient_scale)});
    for (const model::UnitView& unit : units) unit.append_to(key_);
    backend.region(key_, body);
}

void Engine::forward(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch* batch, std::size_t block,
                     const model::Loss& loss, std::optional<std::uint64_t> dropout_seed) {
    const trace::Span span("forward", model_->blocks[block]->name());
    const std::span<const Tensor> weights = gather_.acquire(ranks.shard_group(), block);
    if (block + 1 < model_->blocks.size()) gather_.prefetch(ranks.shard_group(), block + 1);
    if (batch == nullptr) return;
    const bool is_last = block + 1 == model_->blocks.size();
    const std::function<void()> between = [&ranks] { ranks.progress(); };
    const model::Context context{.backend = backend,
                                 .workspace = workspace_,
                                 .batch = *batch,
                                 .dropout_seed = dropout_seed,
                                 .progress = backend.host_reaches_device() ? &between : nullptr};
    const auto units = views(block, weights, {});
    const model::Loss* const of_head = is_last ? &loss : nullptr;
    run_block(backend, context, block, Pass::kForward, units, of_head, [&] {
        model_->blocks[block]->forward(context, units, block_input(block, batch->shape),
                                       block_input(block + 1, batch->shape), saved_[block], of_head);
    });
}

void Engine::backward(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch& batch, std::size_t block,
                      const model::Loss& loss, bool last) {
    const trace::Span span("backward", model_->blocks[block]->name());
    const model::Block& this_block = *model_->blocks[block];
    const bool reads_weights = this_block.backward_reads_weights();
    const std::span<const Tensor> weights =
        reads_weights ? gather_.acquire(ranks.shard_group(), block) : std::span<const Tensor>();
    // The next micro-step begins with those of the first block, which its backward pass may not read.
    if (block > first_trained_block_ && (!last || model_->blocks[block - 1]->backward_reads_weights()))
        gather_.prefetch(ranks.shard_group(), block - 1);
    const bool is_last = block + 1 == model_->blocks.size();
    const std::function<void()> between = [&ranks] { ranks.progress(); };
    const model::Context context{.backend = backend,
                                 .workspace = workspace_,
                                 .batch = batch,
                                 .input_gradient_needed = block > first_trained_block_,
                                 .dropout_seed = options_.dropout_seed,
                                 .progress = backend.host_reaches_device() ? &between : nullptr};
    const Tensor input = block_input(block, batch.shape);
    const Tensor gradient = gradient_.row_range(0, batch.shape.tokens());
    const model::Loss* const of_head = is_last ? &loss : nullptr;
    if (saved_[block].keep != model::Keep::kAll) {
        const trace::Span recompute_span("recompute", this_block.name());
        const auto read = views(block, weights, {});
        run_block(backend, context, block, Pass::kRecompute, read, nullptr,
                  [&] { this_block.recompute(context, read, input, saved_[block]); });
    }
    const auto units = views(block, weights, reduce_.unsharded_gradients(backend, ranks, block));
    run_block(backend, context, block, Pass::kBackward, units, of_head, [&] {
        this_block.backward(context, units, input, saved_[block], is_last ? Tensor() : gradient,
                            block == 0 ? Tensor() : gradient, of_head);
    });
}

void Engine::train(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch& batch, const MicroStep& step) {
    const std::size_t count = model_->blocks.size();
    const model::Loss loss{flat_range(token_losses_, 0, batch.shape.tokens()), step.gradient_scale, step.loss_scale};
    const std::size_t forwards = model_->blocks.back()->backward_includes_forward() ? count - 1 : count;
    for (std::size_t block = 0; block < forwards; ++block)
        forward(backend, ranks, &batch, block, loss, options_.dropout_seed);
    for (std::size_t block = count; block-- > first_trained_block_;) {
        backward(backend, ranks, batch, block, loss, step.is_last);
        reduce_.block_done(backend, ranks, block, step.is_last);
    }
    backend.sum(loss.token_losses, step.loss_sum, !step.is_first);
}

double Engine::evaluate(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch* batch,
                        const Tensor& loss_sum) {
    const std::int64_t tokens = batch == nullptr ? 0 : batch->shape.tokens();
    const model::Loss loss{tokens == 0 ? Tensor() : flat_range(token_losses_, 0, tokens), 0.0F};
    for (std::size_t block = 0; block < model_->blocks.size(); ++block)
        forward(backend, ranks, batch, block, loss, std::nullopt);
    if (batch == nullptr) return 0;
    backend.sum(loss.token_losses, loss_sum, false);
    return read_scalar(backend, loss_sum);
}

std::optional<std::size_t> Engine::find_not_finite(kernels::Backend& backend, ProcessGroups& ranks,
                                                   const model::Batch& batch) {
    const model::Loss loss{flat_range(token_losses_, 0, batch.shape.tokens()), 0.0F};
    std::optional<std::size_t> first;
    for (std::size_t block = 0; block < model_->blocks.size(); ++block) {  // all, as the other ranks' gathers need it
        forward(backend, ranks, &batch, block, loss, options_.dropout_seed);
        const bool is_last = block + 1 == model_->blocks.size();
        const Tensor output = is_last ? loss.token_losses : block_input(block + 1, batch.shape);
        if (!first && !all_finite(backend, output)) first = block;
    }
    return first;
}

}  // namespace atl::parallel
