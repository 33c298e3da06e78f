#include "trainer/parallel/process_groups.h"

#include <utility>

namespace atl::parallel {

ProcessGroups::ProcessGroups(comm::Comm& world, const ParallelLayout& layout, kernels::Backend& backend,
                             const ExchangeLibrary* library)
    : layout_(layout) {
    const Mesh& mesh = layout.mesh;
    check(world.size() == mesh.ranks() && world.rank() == mesh.rank_of(layout.place),
          "ProcessGroups: a layout of other ranks");
    const auto mpi = open_exchange_library(backend);
    if (library == nullptr) library = mpi.get();
    const auto make_group = [&](std::unique_ptr<comm::Comm> ranks) {
        auto collectives = library->make_group(*ranks);
        return Group{std::move(ranks), std::move(collectives)};
    };
    world_ = library->make_group(world);
    if (mesh.model_parts() > 1) {
        const int part = layout.place.stage * mesh.tensor + layout.place.tensor;
        sharing_ = make_group(world.split(part, layout.rank()));
    }
    if (layout.replicas() == 1) return;
    comm::Comm& all = sharing().comm();
    copy_ = make_group(all.split(layout.replica(), layout.shard()));
    replicas_ = make_group(all.split(layout.shard(), layout.replica()));
    by_shard_ = make_group(all.split(0, layout.rank_by_shard(layout.rank())));
}

void ProcessGroups::progress() {
    world_->progress();
    for (const Group* group : {&sharing_, &copy_, &replicas_, &by_shard_}) {
        if (group->collectives) group->collectives->progress();
    }
}

}  // namespace atl::parallel
