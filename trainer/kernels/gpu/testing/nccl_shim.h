#pragma once

#include <string>

#include "trainer/comm/nccl.h"

// NCCL with the threads of this process as its ranks, each with its device of the shim of CUDA's runtime: what
// trainer/comm/nccl.h declares, with the meaning that NVIDIA documents for communicators that do not block.
//
// A communicator's calls are numbered as each rank makes them. One begins on a rank once its stream comes to it and
// takes what is sent then, and ends when it has begun on all. Where ranks differ in their call of one number NCCL would
// stand still or mix up memory: here all get an error that says how they differ. Sums are added along a ring, and
// rounded at each hop.
namespace atl::kernels::gpu::shim {

// A function of the shim by NCCL's name for it; null for others.
void* find_nccl_symbol(const char* name);
const comm::Nccl& nccl();

// The next time that this thread asks for the state of a communicator it is that.
void fail_next_nccl(comm::NcclResult result);

}  // namespace atl::kernels::gpu::shim
