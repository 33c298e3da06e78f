#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/parallel/parameter_store.h"

// Sums of a step's sequences by one fixed binary tree over the sequences in global order, ((0+1)+(2+3))+…, so that
// their bits depend neither on the number of ranks nor on which rank had which sequence.
namespace atl::parallel {

// Adds up gradients, one a sequence, in the order of the sequences. Keeps log2(sequences) partial sums of what a rank
// adds up.
class PairwiseSum {
  public:
    // `sequences` of a step over all ranks.
    static PairwiseSum lay_out(Arena& arena, const ParameterStore& store, std::int64_t sequences);

    // The next sequence's gradient of the unit, as long as ParameterStore::own_gradients; destroyed. After the step's
    // last sequence the sum is in `sum`, which may be `gradient`.
    void add(kernels::Backend& backend, std::size_t unit, const Tensor& gradient, const Tensor& sum);

  private:
    std::int64_t sequences_ = 0;
    std::vector<std::int64_t> added_;           // sequences, by unit
    std::vector<std::vector<Tensor>> partial_;  // by unit: at k the sum of 2^k neighbouring sequences
};

// The sum of one number a sequence. A rank has those of sequences rank, rank + size, rank + 2·size, …; all have as
// many, with zeros at the end where there are fewer. Every rank gets the same.
double sum_by_sequence(comm::Comm& comm, std::span<const double> mine);

}  // namespace atl::parallel
