#pragma once

#include <memory>
#include <optional>

#include "trainer/comm/comm.h"

namespace atl::comm {

// The two groups of which a rank is one where a group lies on several machines, as many consecutive ranks on each.
struct NodeGroups {
    std::unique_ptr<Comm> on_node;       // this machine's ranks
    std::unique_ptr<Comm> across_nodes;  // of each machine the rank that has this one's place there
};

// Nothing where all ranks are on one machine or each is on one of its own, and where machines have unequal numbers of
// ranks or ranks that do not follow each other. Every member makes the same call.
std::optional<NodeGroups> split_by_node(Comm& comm);

}  // namespace atl::comm
