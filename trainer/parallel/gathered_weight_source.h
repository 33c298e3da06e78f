#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "trainer/model/generate.h"
#include "trainer/parallel/parameter_gather.h"
#include "trainer/plan/memory.h"

namespace atl::parallel {

// A run's weights as generation asks for them: those that every rank keeps whole, or one block's after the other,
// gathered from the ranks of `copy`, of which all must generate alike. Not movable: its parts point to each other.
class GatheredWeightSource final : public model::WeightSource {
  public:
    // Room for them; the weights are zeros. kResourceExhausted: there is not that much memory. The references must
    // outlive it.
    static Result<std::unique_ptr<GatheredWeightSource>> allocate(kernels::Backend& backend, const model::Model& model,
                                                                  const ParallelLayout& layout, Collectives& copy);

    // What allocate() would take.
    static plan::Bytes need_bytes(kernels::Backend& backend, const model::Model& model, const ParallelLayout& layout,
                                  Collectives& copy);

    ParameterStore& store() { return store_; }
    void begin_block(std::size_t block) override;
    Tensor weights(std::size_t unit) override;

  private:
    GatheredWeightSource(const model::Model& model, Collectives& copy) : model_(model), copy_(copy) {}
    void lay_out(kernels::Backend& backend, const ParallelLayout& layout);

    const model::Model& model_;
    Collectives& copy_;
    Arena device_ = Arena::measuring(), pinned_ = Arena::measuring();
    ParameterStore store_;
    ParameterGather gather_;
    std::size_t block_ = 0;
    std::span<const Tensor> of_block_;
};

}  // namespace atl::parallel
