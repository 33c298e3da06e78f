#pragma once

#include <vector>

#include "trainer/parallel/parameter_store.h"

namespace atl::parallel {

// FedProx's term (Li et al., arXiv:1812.06127): the loss of a facility's training becomes loss + mu / 2 · |w − w₀|²,
// where w₀ are the weights that its round began with. So the gradient has mu (w − w₀) added to it, here before its norm
// is taken: clipping sees the sum. Of frozen units there is no term.
//
// Each rank keeps −w₀ for its gradient_shard alone, in the format of the exact weights (ParameterStore::Saved), and w
// are the exact weights: masters where there are some. An element's term depends on nothing but that element, so every
// sharding gives the same bits.
class ProximalTerm {
  public:
    // With a measuring arena only the memory is counted.
    static ProximalTerm lay_out(Arena& arena, const ParameterStore& store);

    // The weights that the store has now become w₀. Errors, of this rank alone, are those of the file that the
    // optimizer is offloaded to; those of add_to_gradients() too, which reads masters from it.
    Status set_start(kernels::Backend& backend, ParameterStore& store);
    // gradient_shard += factor · (w − w₀) of every unit, after GradientReduce::finish(); computed in fp32.
    Status add_to_gradients(kernels::Backend& backend, ParameterStore& store, double factor);

  private:
    // Elements of a unit's shard that are worked on at a time.
    struct Range {
        std::size_t unit = 0;
        std::int64_t begin = 0;
        std::int64_t count = 0;
    };
    template <class Work>
    Status for_each_range(const ParameterStore& store, const Work& work) const;
    // The exact weights of a range: where they are, or read from the file into `buffer`.
    Result<Tensor> exact_weights(kernels::Backend& backend, ParameterStore& store, const Range& range,
                                 const Tensor& buffer);

    std::vector<Tensor> negated_start_;  // −w₀ by unit, [shard]; empty: the unit is frozen
    Tensor difference_;                  // of one range, in the masters' format
    std::vector<std::byte> read_;
};

}  // namespace atl::parallel
