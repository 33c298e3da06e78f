#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/parallel/parameter_store.h"

// Sums of a step's rows by one fixed binary tree over the rows in global order, ((0+1)+(2+3))+…, so that their bits
// depend neither on the number of ranks nor on which rank had which row.
namespace atl::parallel {

// Adds up gradients, one a row, in the order of the rows. Keeps log2(rows) partial sums of what a rank adds up.
class PairwiseSum {
  public:
    // `rows` of a step over all ranks.
    static PairwiseSum lay_out(Arena& arena, const ParameterStore& store, std::int64_t rows);

    // The next row's gradient of the unit, as long as ParameterStore::own_gradients; destroyed. After the step's last
    // row the sum is in `sum`, which may be `gradient`.
    void add(kernels::Backend& backend, std::size_t unit, const Tensor& gradient, const Tensor& sum);

  private:
    std::int64_t rows_ = 0;
    std::vector<std::int64_t> added_;           // rows, by unit
    std::vector<std::vector<Tensor>> partial_;  // by unit: at k the sum of 2^k neighbouring rows
};

// The sum of one number a row. A rank has those of rows rank, rank + size, rank + 2·size, …; all have as many, with
// zeros at the end where there are fewer. Every rank gets the same.
double sum_rows(comm::Comm& comm, std::span<const double> mine);

}  // namespace atl::parallel
