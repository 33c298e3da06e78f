#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/model/generate.h"
#include "trainer/model/model.h"

namespace atl::model {

struct PassOptions {
    Keep keep = Keep::kAll;     // the rest is computed again, after something else was there
    bool accumulate = false;    // add to the gradients of an earlier pass
    double loss_divisor = 0.0;  // of the gradients; 0: the counted targets of this batch
};

// The simplest driver: all weights and gradients in host memory, one process, no optimizer. Tests and benchmarks
// measure the blocks with it; the trainer's own driver shards. CPU backends only. Not enough memory is a programmer's
// error here.
class ReferenceDriver final : public WeightSource {
  public:
    // Weights are uninitialised.
    ReferenceDriver(Model model, kernels::Backend& backend);
    ~ReferenceDriver() override;
    ReferenceDriver(ReferenceDriver&&) noexcept;

    const Model& model() const { return model_; }
    // Of one parameter; empty when there is none of that name.
    std::span<float> weight(std::string_view name) { return find(name, weights_); }
    std::span<float> gradient(std::string_view name) { return find(name, gradients_); }
    Tensor weights(std::size_t unit) override;

    // One forward and backward pass: the mean loss over counted targets. The batch must be valid.
    double train(const HostBatch& host_batch, const PassOptions& options = {});
    // The mean loss, keeping nothing for backward.
    double evaluate(const HostBatch& host_batch);

  private:
    struct Memory;
    std::span<float> find(std::string_view name, std::vector<std::vector<float>>& buffers);
    std::vector<UnitView> views(std::size_t block, const std::vector<bool>& accumulate);
    // Memory for that shape, kept from pass to pass; with the batch loaded.
    double load(const HostBatch& host_batch);

    Model model_;
    kernels::Backend& backend_;
    std::vector<std::vector<float>> weights_, gradients_;
    std::unique_ptr<Memory> memory_;
};

}  // namespace atl::model
