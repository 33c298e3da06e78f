#pragma once

#include <memory>
#include <optional>

#include "trainer/parallel/collectives.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {

// The groups in which a run's ranks exchange what a ParallelLayout shards. Outside the hybrid modes all are the world.
// Not movable.
class ProcessGroups {
  public:
    // Every rank makes the same call. `world` and `backend` must outlive it.
    ProcessGroups(comm::Comm& world, const ParallelLayout& layout, kernels::Backend& backend);
    ProcessGroups(const ProcessGroups&) = delete;
    ProcessGroups& operator=(const ProcessGroups&) = delete;

    Collectives& world() { return world_; }
    // The ranks that keep one copy together with this one, in the order of their shards.
    Collectives& shard_group() { return copy_ ? copy_->collectives : world_; }
    // The ranks that keep the same shard as this one, one a copy; null when there is one copy.
    Collectives* replicate_group() { return replicas_ ? &replicas_->collectives : nullptr; }
    // All ranks in the order of ParameterStore::own_gradients, so that a sum over them adds in the same order as
    // full_shard does.
    Collectives& world_by_shard() { return by_shard_ ? by_shard_->collectives : world_; }
    // Moves on what is under way in any of them.
    void progress();

  private:
    struct Group {
        Group(std::unique_ptr<comm::Comm> ranks, kernels::Backend& backend)
            : comm(std::move(ranks)), collectives(*comm, backend) {}
        std::unique_ptr<comm::Comm> comm;
        Collectives collectives;
    };
    Collectives world_;
    std::optional<Group> copy_, replicas_, by_shard_;
};

}  // namespace atl::parallel
