#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/optim/muon.h"
#include "trainer/parallel/collectives.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {

// Whether Muon drives a parameter: a weight matrix of a layer. AdamW drives the rest: embedding, head, norms, biases.
bool is_driven_by_muon(const model::FsdpUnit& unit, const model::Parameter& parameter);

// The directions in which Muon moves the matrices of a unit. Whatever is sharded, each matrix is orthogonalised whole,
// by one rank of those that keep a copy of the model together, so no sharding and no number of ranks changes a bit; the
// ranks share the work matrix by matrix.
//
//   backend.nesterov(momentum, scalars, ranges of directions.own(unit));
//   directions.orthogonalize(backend, ranks, unit);
//   backend.sgd(…, ranges of directions.own(unit) as gradients);
class MuonDirections {
  public:
    MuonDirections() = default;
    // For the largest unit. `is_sharded`: each rank has its shard of the momenta, not all.
    static MuonDirections lay_out(const Arenas& arenas, const model::Model& model, const ParallelLayout& layout,
                                  bool is_sharded);

    // Whether any matrix of the unit is driven by Muon.
    bool drives(std::size_t unit) const { return !units_[unit].matrices.empty(); }
    // Of a unit that it drives: fp32, of the unit's elements that this rank updates; what orthogonalize() takes and
    // gives there.
    tensor::Tensor own(std::size_t unit) const;
    // Every rank of the copy makes the same call.
    void orthogonalize(kernels::Backend& backend, Collectives& ranks, std::size_t unit) const;

  private:
    struct Matrix {
        std::int64_t offset = 0, rows = 0, columns = 0;
        int owner = 0;  // the rank of the copy that orthogonalises it
    };
    struct Unit {
        ShardSpec spec;
        std::vector<Matrix> matrices;
    };
    static std::vector<Matrix> share_out(const model::FsdpUnit& unit, int ranks);

    const model::Model* model_ = nullptr;
    bool is_sharded_ = false;
    std::vector<Unit> units_;
    tensor::Tensor whole_;  // fp32, as long as the largest unit with its padding
    optim::OrthogonalizeScratch scratch_;
    tensor::Tensor gather_pinned_;
    Collectives::ReduceMemory reduce_memory_;
};

}  // namespace atl::parallel
