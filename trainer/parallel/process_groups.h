#pragma once

#include <memory>

#include "trainer/comm/comm.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {

// The groups in which a run's ranks exchange what a ParallelLayout shards. Outside the hybrid modes all are the world.
class ProcessGroups {
  public:
    // Every rank makes the same call. `world` must outlive it.
    ProcessGroups(comm::Comm& world, const ParallelLayout& layout);

    comm::Comm& world() { return *world_; }
    // The ranks that keep one copy together with this one, in the order of their shards.
    comm::Comm& shard_group() { return copy_ ? *copy_ : *world_; }
    // The ranks that keep the same shard as this one, one a copy; null when there is one copy.
    comm::Comm* replicate_group() { return replicas_.get(); }
    // All ranks in the order of ParameterStore::own_gradients, so that a sum over them adds in the same order as
    // full_shard does.
    comm::Comm& world_by_shard() { return by_shard_ ? *by_shard_ : *world_; }
    // Moves on what is under way in any of them.
    void progress();

  private:
    comm::Comm* world_;
    std::unique_ptr<comm::Comm> copy_;
    std::unique_ptr<comm::Comm> replicas_;
    std::unique_ptr<comm::Comm> by_shard_;
};

}  // namespace atl::parallel
