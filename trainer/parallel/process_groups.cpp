#include "trainer/parallel/process_groups.h"

namespace atl::parallel {

ProcessGroups::ProcessGroups(comm::Comm& world, const ParallelLayout& layout, kernels::Backend& backend)
    : layout_(layout), world_(world, backend) {
    const Mesh& mesh = layout.mesh;
    check(world.size() == mesh.ranks() && world.rank() == mesh.rank_of(layout.place),
          "ProcessGroups: a layout of other ranks");
    if (mesh.model_parts() > 1) {
        const int part = layout.place.stage * mesh.tensor + layout.place.tensor;
        sharing_.emplace(world.split(part, layout.rank()), backend);
    }
    if (layout.replicas() == 1) return;
    comm::Comm& all = sharing().comm();
    copy_.emplace(all.split(layout.replica(), layout.shard()), backend);
    replicas_.emplace(all.split(layout.shard(), layout.replica()), backend);
    by_shard_.emplace(all.split(0, layout.rank_by_shard(layout.rank())), backend);
}

void ProcessGroups::progress() {
    world_.progress();
    for (std::optional<Group>* group : {&sharing_, &copy_, &replicas_, &by_shard_}) {
        if (*group) (*group)->collectives.progress();
    }
}

}  // namespace atl::parallel
