#pragma once

#include <memory>
#include <optional>
#include <string>

#include "shared/run_settings/run_settings.h"
#include "trainer/comm/comm.h"
#include "trainer/parallel/collectives.h"

// Which library moves the tensors of GPUs between a run's ranks. The choice is pure; every rank makes the same.
namespace atl::train {

struct ExchangeFacts {
    int ranks = 1;
    bool is_cuda = false;                  // the ranks compute on NVIDIA's GPUs
    std::optional<std::string> no_nccl{};  // why NCCL cannot be had on a rank
    bool shares_card = false;              // two ranks of a machine have one GPU
};

struct ExchangeChoice {
    bool is_nccl = false;
    std::string why_not{};  // NCCL would be faster and this keeps it from being chosen; empty: nothing does
};

// kInvalidArgument, kUnavailable of "--distributed-backend": NCCL was asked for, and cannot be.
Result<ExchangeChoice> choose_exchange(run_settings::DistributedBackend asked, const ExchangeFacts& facts);

// That library, by which the host waits for the device from now on. Rank 0 says on standard error which one it is where
// there was a choice. Every rank takes part and gets the same outcome.
Result<std::shared_ptr<const parallel::ExchangeLibrary>> open_exchange(const run_settings::RunConfig& config,
                                                                       kernels::Backend& backend, comm::Comm& comm);
// The same for a run of so many ranks that is planned, so many of them on a machine like this.
Result<std::shared_ptr<const parallel::ExchangeLibrary>> plan_exchange(const run_settings::RunConfig& config,
                                                                       kernels::Backend& backend, int ranks,
                                                                       int ranks_on_node);

}  // namespace atl::train
