#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/optim/optimizer.h"
#include "trainer/train/sharding.h"

namespace atl::train {

using tensor::Arena;
using tensor::Tensor;

// What a rank keeps of the model between steps: its weights, gradients and moments, whole or its shard, one flat buffer
// a group: weights in the group's storage format, all else fp32. With one rank the shard is the whole.
class ParameterStore {
  public:
    // Without an optimizer (evaluation) there are weights only. With a measuring arena only the memory is counted.
    static ParameterStore lay_out(Arena& arena, const model::Model& model, const Division& division,
                                  const optim::Optimizer* optimizer);

    const model::Model& model() const { return *model_; }
    const Division& division() const { return division_; }
    Sharding sharding() const { return division_.sharding; }
    const GroupCut& cut(std::size_t group) const { return cuts_[group]; }
    std::size_t group_count() const { return cuts_.size(); }
    tensor::DType storage(std::size_t group) const { return model_->groups[group].storage; }

    // [whole] if every rank keeps all weights, else [shard].
    const Tensor& weights(std::size_t group) const { return weights_[group]; }
    // [whole] in the modes that keep whole gradients, else [shard].
    const Tensor& gradients(std::size_t group) const { return gradients_[group]; }
    // This rank's part of either, [shard].
    Tensor weight_shard(std::size_t group) const { return shard_of(weights_[group], cuts_[group]); }
    Tensor gradient_shard(std::size_t group) const { return shard_of(gradients_[group], cuts_[group]); }
    // The part of gradient_shard that is this rank's alone, [shard / copies]: what it adds to sums over all gradients.
    Tensor own_gradients(std::size_t group) const;
    // [whole] without sharding, else [shard]; empty when the optimizer has fewer.
    const Tensor& moments(int which, std::size_t group) const {
        return moments_[static_cast<std::size_t>(which)][group];
    }
    int moment_count() const { return moment_count_; }

    // Zeros in all weights, also their padding: before they are loaded.
    void clear_weights(kernels::Backend& backend) const;
    // Zeros in the moments: before the first step. Apart, so that nothing but weights takes memory while the files that
    // they are read from are mapped.
    void clear_moments(kernels::Backend& backend) const;

    // Applies the optimizer to what this rank keeps moments of. Where only a shard of replicated weights was updated,
    // the ranks of this copy (`comm`) exchange them. `decay_norms` false leaves norms without weight decay.
    struct Update {
        std::int64_t step = 1;
        double learning_rate = 0;
        double gradient_scale = 1;
        bool decay_norms = true;
    };
    void update(kernels::Backend& backend, comm::Comm& comm, const optim::Optimizer& optimizer,
                const Update& update) const;

  private:
    // The elements of a group that this rank updates.
    struct UpdateRange {
        std::int64_t begin = 0;
        std::int64_t count = 0;
    };
    // Neighbouring elements of that range that are all norms, or all not.
    struct Run {
        std::int64_t begin = 0;
        std::int64_t count = 0;
        bool is_norm = false;
    };
    UpdateRange update_range(std::size_t group) const;
    std::vector<Run> find_runs(std::size_t group) const;
    static Tensor shard_of(const Tensor& tensor, const GroupCut& cut);
    void update_group(kernels::Backend& backend, const optim::Optimizer& optimizer, const Update& update,
                      std::size_t group) const;

    const model::Model* model_ = nullptr;
    Division division_;
    int moment_count_ = 0;
    std::vector<GroupCut> cuts_;
    std::vector<Tensor> weights_;
    std::vector<Tensor> gradients_;
    std::array<std::vector<Tensor>, 2> moments_;
    std::vector<std::vector<Run>> runs_;
};

}  // namespace atl::train
