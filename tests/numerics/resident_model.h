#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/model/generate.h"
#include "trainer/model/model.h"

namespace atl::numerics {

struct TrainOptions {
    bool recompute = false;   // run each layer's forward again before its backward
    bool accumulate = false;  // add to the gradients of an earlier step
    double loss_divisor = 0;  // 0: the counted targets of this batch
};

// The simplest driver: all weights and gradients in memory, one process. What the tests measure the blocks with.
class ResidentModel final : public model::WeightSource {
  public:
    ResidentModel(model::Model model, kernels::Backend& backend);

    const model::Model& model() const { return model_; }
    std::span<float> weight(const std::string& name) { return find(name, weights_); }
    std::span<float> gradient(const std::string& name) { return find(name, gradients_); }
    model::Tensor weights(std::size_t group) override { return flat(weights_[group]); }

    // One forward and backward pass: the mean loss over counted targets.
    double train(const model::BatchRows& rows, const TrainOptions& options = {});
    // The mean loss, without keeping anything for backward.
    double evaluate(const model::BatchRows& rows);

  private:
    std::span<float> find(const std::string& name, std::vector<std::vector<float>>& buffers);
    static model::Tensor flat(std::vector<float>& values);
    std::vector<model::GroupView> views(std::size_t block, const std::vector<bool>& accumulate);

    model::Model model_;
    kernels::Backend& backend_;
    std::vector<std::vector<float>> weights_, gradients_;
};

}  // namespace atl::numerics
