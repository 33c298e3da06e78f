#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/parallel/parameter_store.h"

namespace atl::parallel {

// SCAFFOLD's control variate (Karimireddy et al., arXiv:1910.06378) before the inner optimizer. The gradients of a
// run's steps, of the mean loss and clipped, are added up (ParameterStore::gradient_sum). Where a correction is set,
// the optimizer then gets gradient + correction.
//
// Each rank keeps both in fp32 for its gradient_shard alone. An element's sum and correction depend on nothing but that
// element, so every sharding gives the same bits.
class ControlVariate {
  public:
    // Lays out the store's gradient sums, too. With a measuring arena only the memory is counted.
    static ControlVariate lay_out(Arena& arena, ParameterStore& store);

    // Zeros in the sums, and no correction: before the first step.
    void begin(kernels::Backend& backend, const ParameterStore& store);
    // The correction of elements from `at` on of a unit's flat buffer; what this rank does not keep is left out. Zero
    // where nothing is set.
    void set_correction(kernels::Backend& backend, const ParameterStore& store, std::size_t unit, std::int64_t at,
                        std::span<const float> values);

    // After Backend::finish_step() of these scalars and before GradientReduce::share(). Adds gradient_shard to the
    // sums, unless the step is skipped, and the correction to gradient_shard. Returns the scalars by which the
    // optimizer updates: of corrected gradients, which have their factor in them, with a factor of 1.
    Tensor apply(kernels::Backend& backend, const ParameterStore& store, const Tensor& scalars);

  private:
    void correct(kernels::Backend& backend, const Tensor& correction, const Tensor& gradients,
                 const Tensor& scalars) const;

    std::vector<Tensor> corrections_;  // by unit, [shard]; empty: the unit is frozen
    bool corrects_ = false;
    Tensor corrected_;  // gradients of one range
    Tensor scalars_;    // fp64 [kStepScalars], of corrected gradients
    Tensor one_;        // fp64 [1]
};

}  // namespace atl::parallel
