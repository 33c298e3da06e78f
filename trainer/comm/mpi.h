#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/comm/comm.h"

namespace atl::comm {

// MPI's world as a group. MPI is initialised here and finalised at the process' end, which every rank must reach;
// check() and abort_run() end all ranks. Once a process. limit_s: of each wait for other ranks, the start among them;
// see Comm::limit_waits.
std::unique_ptr<Comm> make_mpi_world(double limit_s);

// Ends all its ranks; does nothing where MPI is not initialised.
void abort_mpi_world(int code);

// The MPI library's own name and version, without initialising it.
std::string mpi_version();

// What this MPI adds to the memory of a rank that shares its machine with the others, for a plan that is made without
// starting it: measured with messages through shared memory. 0 for one rank. Eight ranks on two cores were seen to take
// 4 to 8 MB more with Open MPI 4.1, whose peers' queues then grow.
std::int64_t library_bytes(int ranks_on_node);

}  // namespace atl::comm
