#include "trainer/parallel/mesh.h"

#include "shared/base/check.h"

namespace atl::parallel {

Mesh::Place Mesh::place_of(int rank) const {
    check(rank >= 0 && rank < ranks(), "Mesh: no such rank");
    const auto take = [&](int size) {
        const int coordinate = rank % size;
        rank /= size;
        return coordinate;
    };
    Place place;
    place.tensor = take(tensor);
    place.context = take(context);
    place.shard = take(shards);
    place.replica = take(replicas);
    place.stage = rank;
    return place;
}

int Mesh::rank_of(const Place& place) const {
    return (((place.stage * replicas + place.replica) * shards + place.shard) * context + place.context) * tensor +
           place.tensor;
}

}  // namespace atl::parallel
