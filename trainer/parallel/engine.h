#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "trainer/model/batch.h"
#include "trainer/parallel/gradient_reduce.h"
#include "trainer/parallel/parameter_gather.h"
#include "trainer/parallel/recompute.h"

namespace atl::parallel {

struct EngineOptions {
    model::BatchShape largest;  // of a micro-batch
    bool train = true;          // false: evaluation only, nothing is kept for a backward pass
    GradientReduce::Options reduce;
    Checkpointing checkpointing = {};
    std::optional<std::uint64_t> dropout_seed = {};  // of the adapters' dropout; none: nothing is dropped
};

// Runs a model's blocks forward and backward over one micro-batch after another, gathering weights before each block
// and reducing gradients after it. While a block computes, the next one's weights and the previous one's gradients are
// under way, and move on between its products. Every rank makes the same calls.
//
// One optimizer step over `micros` micro-batches in short; TrainingStep does all of it (RunMemory lays out all three):
//
//   for (int m = 0; m < micros; ++m) {
//       engine.train(backend, ranks, batch[m],
//                    {.gradient_scale = 1.0F / targets, .is_first = m == 0, .is_last = m + 1 == micros,
//                     .loss_sum = scalars.loss()});
//   }
//   store.update(backend, ranks.shard_group(), optimizer, {.scalars = scalars.all(), .learning_rate = rate});
//   engine.weights_changed();
class Engine {
  public:
    // With measuring arenas only the memory is counted.
    static Engine lay_out(const Arenas& arenas, kernels::Backend& backend, const ParameterStore& store,
                          const EngineOptions& options);

    // Forward and backward. Sums of token losses go into loss_sum, and the gradient of gradient_scale · loss_scale ·
    // (that sum) is added up over the micro-steps of a step.
    struct MicroStep {
        float gradient_scale = 1.0F;
        bool is_first = true, is_last = true;  // of its step
        Tensor loss_sum;                       // fp64 [1], of the step
        Tensor loss_scale = {};                // fp64 [1]; empty: 1
    };
    void train(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch& batch, const MicroStep& step);
    // The sum of the token losses, into loss_sum (fp64 [1]), which is read. A rank without sequences passes null, takes
    // part in the gathers and has 0.
    double evaluate(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch* batch, const Tensor& loss_sum);

    // For a message after a failure: the forward pass of training once more. The first block whose output (of the last:
    // its losses) is not finite on this rank; absent: they all are.
    std::optional<std::size_t> find_not_finite(kernels::Backend& backend, ProcessGroups& ranks,
                                               const model::Batch& batch);

    GradientReduce& gradients() { return reduce_; }
    void weights_changed() { gather_.invalidate(); }

  private:
    void lay_out_activations(Arena& arena, kernels::Backend& backend);
    void lay_out_saved(Arena& arena, const kernels::Backend& backend, std::int64_t rest_bytes);
    // `body` runs a block: a region of the device (kernels::Backend::region).
    enum class Pass : std::uint8_t { kForward, kRecompute, kBackward };
    void run_block(kernels::Backend& backend, const model::Context& context, std::size_t block, Pass pass,
                   std::span<const model::UnitView> units, const model::Loss* loss, const std::function<void()>& body);
    // Without weights for a block that does not read them.
    std::span<const model::UnitView> views(std::size_t block, std::span<const Tensor> weights,
                                           std::span<const GradientReduce::UnshardedGradient> gradients);
    // Null batch: only takes part in the gathers. Without a seed nothing is dropped.
    void forward(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch* batch, std::size_t block,
                 const model::Loss& loss, std::optional<std::uint64_t> dropout_seed);
    void backward(kernels::Backend& backend, ProcessGroups& ranks, const model::Batch& batch, std::size_t block,
                  const model::Loss& loss, bool last);
    // [tokens, C], empty for the first block and after the last.
    Tensor block_input(std::size_t block, const model::BatchShape& shape) const;

    const ParameterStore* store_ = nullptr;
    const model::Model* model_ = nullptr;
    EngineOptions options_;
    std::size_t first_trained_block_ = 0;
    ParameterGather gather_;
    GradientReduce reduce_;
    std::vector<Tensor> inputs_;             // [N, C], of each block; in evaluation two buffers take turns
    std::vector<model::SavedMemory> saved_;  // of each block; empty in evaluation; what is computed again shares one
    Tensor gradient_;                        // [N, C], of a block's output, then of its input
    Tensor token_losses_;                    // [N]
    Arena workspace_ = Arena::measuring();
    std::vector<model::UnitView> views_;
    std::uint64_t number_ = 0;        // of this engine in the process: another may have had its memory
    std::vector<std::uint64_t> key_;  // of a block's region
};

}  // namespace atl::parallel
