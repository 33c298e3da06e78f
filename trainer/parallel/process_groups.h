#pragma once

#include <memory>

#include "trainer/parallel/collectives.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {

// The groups in which a run's ranks exchange weights, gradients and what is counted of rows: all are of the ranks that
// have the same part of the model. Outside the hybrid modes they are one group. One library makes them all. Not
// movable.
class ProcessGroups {
  public:
    // Every rank makes the same call. `world`, `backend` and the library, which null says is MPI, must outlive it.
    ProcessGroups(comm::Comm& world, const ParallelLayout& layout, kernels::Backend& backend,
                  const ExchangeLibrary* library = nullptr);
    ProcessGroups(const ProcessGroups&) = delete;
    ProcessGroups& operator=(const ProcessGroups&) = delete;

    const ParallelLayout& layout() const { return layout_; }
    // All that have the same part of the model as this rank, in the order of ParallelLayout::rank().
    Collectives& sharing() { return sharing_.collectives ? *sharing_.collectives : *world_; }
    // The ranks that keep one copy together with this one, in the order of their shards.
    Collectives& shard_group() { return copy_.collectives ? *copy_.collectives : sharing(); }
    // The ranks that keep the same shard as this one, one a copy; null when there is one copy.
    Collectives* replicate_group() { return replicas_.collectives.get(); }
    // Those of sharing() in the order of ParameterStore::own_gradients, so that a sum over them adds in the same order
    // as full_shard does.
    Collectives& sharing_by_shard() { return by_shard_.collectives ? *by_shard_.collectives : sharing(); }
    // Moves on what is under way in any of them.
    void progress();

  private:
    struct Group {
        std::unique_ptr<comm::Comm> ranks;
        std::unique_ptr<Collectives> collectives;  // null: it is one of the others
    };
    ParallelLayout layout_;
    std::unique_ptr<Collectives> world_;
    Group sharing_, copy_, replicas_, by_shard_;
};

}  // namespace atl::parallel
