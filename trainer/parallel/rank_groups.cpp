#include "trainer/parallel/rank_groups.h"

namespace atl::parallel {

RankGroups::RankGroups(comm::Comm& world, const Division& division) : world_(&world) {
    check(world.size() == division.ranks && world.rank() == division.rank, "RankGroups: a division of other ranks");
    if (division.copies() == 1) return;
    copy_ = world.split(division.copy(), division.shard());
    replicas_ = world.split(division.shard(), division.copy());
    by_shard_ = world.split(0, division.place(division.rank));
}

void RankGroups::progress() {
    for (comm::Comm* group : {world_, copy_.get(), replicas_.get(), by_shard_.get()}) {
        if (group != nullptr) group->progress();
    }
}

}  // namespace atl::parallel
