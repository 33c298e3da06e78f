#pragma once

#include <functional>

#include "trainer/comm/comm.h"

namespace atl::comm {

// Runs body(comm) on `ranks` threads of this process, each with its rank's group of them all, and returns when all have
// ended: for tests under the thread sanitizer, which MPI's processes do not show it. Of them each `ranks_on_node`
// neighbours are told that they share a machine; 0: all.
//
// Whoever starts a transfer last moves it, in the memory of all ranks. So a rank that touches that memory before it has
// waited races with another thread, as it would with a network.
//
// Waits for a device (Comm::wait_until) have the limit of Comm::limit_waits, after which the process ends.
void run_on_threads(int ranks, const std::function<void(Comm&)>& body, int ranks_on_node = 0);

// From now on this thread, a rank, does this again and again while it waits for others: where its device only goes on
// when it is told to.
void call_while_waiting(std::function<void()> idle);

}  // namespace atl::comm
