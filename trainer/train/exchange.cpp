#include "trainer/train/exchange.h"

#include <algorithm>
#include <array>
#include <vector>

#include "shared/log/log.h"
#include "shared/log/warn.h"
#include "trainer/comm/nccl.h"
#include "trainer/parallel/nccl_collectives.h"
#include "trainer/train/backend.h"

namespace atl::train {
namespace {

using run_settings::Device;
using run_settings::DistributedBackend;
using Library = std::shared_ptr<const parallel::ExchangeLibrary>;

constexpr const char* kFlag = "--distributed-backend";
constexpr const char* kOneCard = "several ranks share one GPU, which NCCL refuses; start as many ranks as GPUs";

ExchangeFacts facts_of(const run_settings::RunConfig& config, int ranks) {
    ExchangeFacts facts{.ranks = ranks, .is_cuda = config.device == Device::kCuda};
    if (facts.is_cuda && config.distributed_backend != DistributedBackend::kMpi && !comm::open_nccl().ok())
        facts.no_nccl = comm::open_nccl().error().message;
    return facts;
}

// Whether another rank of this rank's machine has its GPU, too. Every rank takes part.
bool shares_card(const kernels::Backend& backend, comm::Comm& comm) {
    const auto node = comm.on_node();
    std::array<char, 32> mine{};
    backend.card().copy(mine.data(), mine.size() - 1);
    std::vector<std::array<char, 32>> all(static_cast<std::size_t>(node->size()));
    node->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    return std::ranges::count(all, mine) > 1;
}

Library make_library(const ExchangeChoice& choice, kernels::Backend& backend) {
    if (!choice.is_nccl) return parallel::open_exchange_library(backend);
    return std::make_shared<parallel::NcclLibrary>(backend, comm::open_nccl().value());
}

}  // namespace

Result<ExchangeChoice> choose_exchange(DistributedBackend asked, const ExchangeFacts& facts) {
    const bool is_asked = asked == DistributedBackend::kNccl;
    if (asked == DistributedBackend::kMpi || (facts.ranks == 1 && !is_asked)) return ExchangeChoice{};
    if (!facts.is_cuda) {
        if (!is_asked) return ExchangeChoice{};
        return invalid_argument(kFlag, "nccl moves the memory of NVIDIA's GPUs: it takes --device cuda");
    }
    if (facts.no_nccl) {
        if (!is_asked) return ExchangeChoice{.why_not = *facts.no_nccl};
        return Error{ErrorCode::kUnavailable, *facts.no_nccl, kFlag};
    }
    if (facts.shares_card) {
        if (!is_asked) return ExchangeChoice{.why_not = kOneCard};
        return invalid_argument(kFlag, kOneCard);
    }
    return ExchangeChoice{.is_nccl = true};
}

Result<Library> open_exchange(const run_settings::RunConfig& config, kernels::Backend& backend, comm::Comm& comm) {
    ExchangeFacts facts = facts_of(config, comm.size());
    std::array<double, 2> any = {facts.is_cuda && shares_card(backend, comm) ? 1.0 : 0.0, facts.no_nccl ? 1.0 : 0.0};
    comm.all_reduce(any, comm::Reduction::kMax);
    facts.shares_card = any[0] > 0;
    if (any[1] > 0 && !facts.no_nccl) facts.no_nccl = "another rank does not find NCCL";
    ATOLL_TRY(const ExchangeChoice choice, comm::agreed(comm, choose_exchange(config.distributed_backend, facts)));
    Library library = make_library(choice, backend);
    parallel::wait_by_ranks(backend, comm, library);
    if (comm.rank() == 0 && choice.is_nccl)
        spdlog::info("ranks exchange tensors by {} ({})", comm::open_nccl()->name(), comm::open_nccl()->path);
    if (comm.rank() == 0 && !choice.why_not.empty())
        log::warn("ranks exchange tensors by MPI, through the host's memory: " + choice.why_not);
    return library;
}

Result<Library> plan_exchange(const run_settings::RunConfig& config, kernels::Backend& backend, int ranks,
                              int ranks_on_node) {
    ExchangeFacts facts = facts_of(config, ranks);
    facts.shares_card = facts.is_cuda && ranks_a_gpu(ranks_on_node) > 1;
    ATOLL_TRY(const ExchangeChoice choice, choose_exchange(config.distributed_backend, facts));
    return make_library(choice, backend);
}

}  // namespace atl::train
