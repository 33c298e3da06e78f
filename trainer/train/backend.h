#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "shared/run_settings/run_settings.h"
#include "trainer/comm/comm.h"
#include "trainer/kernels/backend.h"

// What a rank computes with.
namespace atl::train {

// What --device may name; the others are not built into this program.
std::span<const std::string_view> built_devices();

// The device a run computes on, with its threads: --threads, or this rank's share of the cores. Ranks with different
// kernels are told on standard error; kConflict with --deterministic.
Result<std::unique_ptr<kernels::Backend>> open_backend(const run_settings::RunConfig& config, comm::Comm& comm);

// How many ranks of its machine compute on this rank's GPU. Every rank takes part.
int ranks_on_gpu_of(comm::Comm& comm);
// How many share one where a machine with this one's GPUs has so many, at most.
int ranks_a_gpu(int ranks);

// The threads of this rank unless --threads says: its share of the cores. `node` has the ranks of its machine, and each
// takes part.
int thread_share(comm::Comm& node);

// The rate of large matrix products in this format that this backend reaches now, in floating-point operations a
// second: on a CPU the best of a few products of 512×512 matrices; on a device that the host does not reach the best
// of several asked for at once, of squares that double until one takes milliseconds or gets no faster. 0 when there is
// no memory for it.
double measure_peak_flops(kernels::Backend& backend, tensor::DType format);

// One such product of each kind, where their rate is of no interest: what the libraries keep of them is memory that a
// training has taken before its own is judged.
void warm_up_products(kernels::Backend& backend, tensor::DType format);

}  // namespace atl::train
