#include "trainer/comm/node_groups.h"

#include <vector>

namespace atl::comm {

std::optional<NodeGroups> split_by_node(Comm& comm) {
    std::unique_ptr<Comm> node = comm.on_node();
    if (node->size() == comm.size()) return std::nullopt;
    struct Place {
        int on_node;
        int ranks_on_node;
    };
    const Place mine = {node->rank(), node->size()};
    std::vector<Place> places(static_cast<std::size_t>(comm.size()));
    comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(places)));
    const int ranks_on_node = places.front().ranks_on_node;
    for (int rank = 0; rank < comm.size(); ++rank) {
        const Place& place = places[static_cast<std::size_t>(rank)];
        if (place.ranks_on_node != ranks_on_node || place.on_node != rank % ranks_on_node) return std::nullopt;
    }
    if (ranks_on_node == 1) return std::nullopt;
    return NodeGroups{std::move(node), comm.split(mine.on_node)};
}

}  // namespace atl::comm
