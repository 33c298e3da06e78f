#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/model/generate.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/run_memory.h"

namespace atl::numerics {

// A model run on one rank by the trainer's own engine, on any backend. As a source of weights it lends them to
// generation. Not movable: its parts point to each other. Not enough memory is a programmer's error here.
class EngineModel final : public model::WeightSource {
  public:
    // For batches of that shape. Weights are zeros.
    EngineModel(model::Model model, const model::BatchShape& shape, kernels::Backend& backend,
                const parallel::Checkpointing& checkpointing = {});
    EngineModel(const model::ModelConfig& config, const kernels::Formats& formats, const model::BatchShape& shape,
                kernels::Backend& backend);

    const model::Model& model() const { return model_; }
    // Rounded to the weights' format, to nearest, or quantised.
    void set_weight(std::string_view name, std::span<const float> values);
    // Of weights in fp32.
    std::vector<float> weight(std::string_view name);
    tensor::Tensor weights(std::size_t unit) override { return memory_->store().weights(unit); }
    // The mean loss over the targets; with its gradients, in fp32, in gradient(), where those of several passes are
    // added up.
    double train(const model::HostBatch& rows, int passes = 1);
    std::vector<float> gradient(std::string_view name);
    // The mean loss again, keeping nothing for gradients.
    double evaluate(const model::HostBatch& rows);

  private:
    // The part of a unit's flat buffer that is the parameter.
    template <class Use>
    void use(std::string_view name, const Use& use_part);
    // The number of targets.
    double load(const model::HostBatch& rows);

    kernels::Backend& backend_;
    model::Model model_;
    optim::Optimizer optimizer_{optim::OptimizerKind::kSgd};
    std::unique_ptr<comm::Comm> self_ = comm::make_self();
    parallel::ProcessGroups ranks_{*self_, {}, backend_};
    std::unique_ptr<parallel::RunMemory> memory_;
};

}  // namespace atl::numerics
