#include "trainer/parallel/process_groups.h"

namespace atl::parallel {

ProcessGroups::ProcessGroups(comm::Comm& world, const ParallelLayout& layout) : world_(&world) {
    check(world.size() == layout.ranks && world.rank() == layout.rank, "ProcessGroups: a layout of other ranks");
    if (layout.replicas() == 1) return;
    copy_ = world.split(layout.replica(), layout.shard());
    replicas_ = world.split(layout.shard(), layout.replica());
    by_shard_ = world.split(0, layout.rank_by_shard(layout.rank));
}

void ProcessGroups::progress() {
    for (comm::Comm* group : {world_, copy_.get(), replicas_.get(), by_shard_.get()}) {
        if (group != nullptr) group->progress();
    }
}

}  // namespace atl::parallel
