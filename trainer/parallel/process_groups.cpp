#include "trainer/parallel/process_groups.h"

namespace atl::parallel {

ProcessGroups::ProcessGroups(comm::Comm& world, const ParallelLayout& layout, kernels::Backend& backend)
    : world_(world, backend) {
    check(world.size() == layout.ranks && world.rank() == layout.rank, "ProcessGroups: a layout of other ranks");
    if (layout.replicas() == 1) return;
    copy_.emplace(world.split(layout.replica(), layout.shard()), backend);
    replicas_.emplace(world.split(layout.shard(), layout.replica()), backend);
    by_shard_.emplace(world.split(0, layout.rank_by_shard(layout.rank)), backend);
}

void ProcessGroups::progress() {
    world_.progress();
    for (std::optional<Group>* group : {&copy_, &replicas_, &by_shard_}) {
        if (*group) (*group)->collectives.progress();
    }
}

}  // namespace atl::parallel
