#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/optim/optimizer.h"
#include "trainer/parallel/run_memory.h"

namespace atl::numerics {

// A model with its tensors in chosen formats, run on one rank by the trainer's own engine. Not enough memory is a
// programmer's error here.
class EngineModel {
  public:
    // For batches of that shape. Weights are zeros.
    EngineModel(const model::ModelConfig& config, const kernels::Formats& formats, const model::BatchShape& shape,
                kernels::Backend& backend);

    const model::Model& model() const { return model_; }
    // Rounded to the weights' format, to nearest.
    void set_weight(std::string_view name, std::span<const float> values);
    // The mean loss over the targets; with its gradients, in fp32, in gradient().
    double train(const model::HostBatch& rows);
    std::vector<float> gradient(std::string_view name);

  private:
    // The part of a unit's flat buffer that is the parameter.
    template <class Use>
    void use(std::string_view name, const Use& use_part);

    kernels::Backend& backend_;
    model::Model model_;
    optim::Optimizer optimizer_{optim::OptimizerKind::kSgd};
    std::unique_ptr<comm::Comm> self_ = comm::make_self();
    parallel::ProcessGroups ranks_{*self_, {}, backend_};
    std::unique_ptr<parallel::RunMemory> memory_;
};

}  // namespace atl::numerics
