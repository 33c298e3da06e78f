#pragma once

#include <memory>
#include <string>

#include "trainer/comm/comm.h"

namespace atl::comm {

// MPI's world as a group. MPI is initialised here and finalised when the group dies, which every rank must reach;
// check() and abort_run() end all ranks. Once a process.
std::unique_ptr<Comm> make_mpi_world();

// The MPI library's own name and version, without initialising it.
std::string mpi_version();

}  // namespace atl::comm
