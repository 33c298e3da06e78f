#include "trainer/train/threads.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "shared/host/cores.h"
#include "shared/log/warn.h"
#include "trainer/comm/launch.h"
#include "trainer/train/backend.h"

namespace atl::train {
namespace {

bool has(const std::string& set, std::size_t core) {
    return core < set.size() && set[core] == '1';
}

// The host::core_set() of each rank of the machine.
std::vector<std::string> gather_sets(comm::Comm& node) {
    std::string mine = host::core_set();
    double longest = static_cast<double>(mine.size());
    node.all_reduce(std::span(&longest, 1), comm::Reduction::kMax);
    const auto length = static_cast<std::size_t>(longest);
    mine.resize(length, '0');
    const auto ranks = static_cast<std::size_t>(node.size());
    std::string all(length * ranks, '0');
    node.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    std::vector<std::string> sets;
    for (std::size_t rank = 0; rank < ranks; ++rank) sets.push_back(all.substr(rank * length, length));
    return sets;
}

}  // namespace

int thread_share(std::span<const std::string> sets, std::size_t rank, double quota) {
    constexpr double kRounding = 1e-6;  // of the sum: three thirds are one
    double cores = 0;
    for (std::size_t core = 0; core < sets[rank].size(); ++core) {
        if (!has(sets[rank], core)) continue;
        cores += 1 / static_cast<double>(std::ranges::count_if(sets, [&](const auto& set) { return has(set, core); }));
    }
    const double share = std::min(cores, quota / static_cast<double>(sets.size()));
    return std::max(1, static_cast<int>(share + kRounding));
}

int thread_share(comm::Comm& node) {
    return thread_share(gather_sets(node), static_cast<std::size_t>(node.rank()), host::core_quota());
}

std::string idle_cores_warning(std::span<const std::string> sets, const std::string& launcher, int threads) {
    constexpr int kProcessorsOfACore = 2;
    const int bound = host::count_cores(sets[0]);
    if (threads > 0 ? threads <= bound : bound > kProcessorsOfACore) return {};
    int idle = 0;
    for (std::size_t core = 0; core < launcher.size(); ++core) {
        const auto may_use = [&](const std::string& set) { return has(set, core); };
        if (has(launcher, core) && std::ranges::none_of(sets, may_use)) ++idle;
    }
    if (idle == 0) return {};
    return "the launcher bound the ranks so that " + std::to_string(idle) + " of the " +
           std::to_string(host::count_cores(launcher)) +
           " cores that it may use lie idle: start them with `mpirun --bind-to none` (or `srun --cpus-per-task N`)";
}

std::string busy_cores_warning(int threads, int cores) {
    if (threads <= cores) return {};
    return "--threads " + std::to_string(threads) + " on " + std::to_string(cores) + (cores == 1 ? " core" : " cores") +
           ": threads that take turns make every step slower, not faster; without --threads there is one a core";
}

Status check_thread_count(std::span<const std::string> sets, int threads, double quota) {
    constexpr double kThreadsPerCoreMax = 16;
    std::string any;  // of the ranks
    for (const std::string& set : sets) {
        any.resize(std::max(any.size(), set.size()), '0');
        for (std::size_t core = 0; core < set.size(); ++core)
            if (has(set, core)) any[core] = '1';
    }
    const double cores = std::min<double>(std::max(1, host::count_cores(any)), quota);
    const auto ranks = static_cast<double>(sets.size());
    if (threads <= 1 || threads * ranks <= kThreadsPerCoreMax * cores) return {};
    const int most = std::max(1, static_cast<int>(kThreadsPerCoreMax * cores / ranks));
    return invalid_argument("--threads", std::to_string(threads) + " are too many for this machine; of its cores and " +
                                             std::to_string(sets.size()) + (sets.size() == 1 ? " rank" : " ranks") +
                                             ": at most " + std::to_string(most) +
                                             ". Without --threads there is one a core");
}

Result<int> choose_threads(int threads, comm::Comm& comm) {
    const auto node = comm.on_node();
    const std::vector<std::string> sets = gather_sets(*node);
    ATOLL_RETURN_IF_ERROR(comm.agree(check_thread_count(sets, threads, host::core_quota())));
    if (comm.rank() == 0) {
        std::string warning;
        if (comm::started_by_launcher(comm::process_environment))
            warning = idle_cores_warning(sets, host::core_set(getppid()), threads);
        if (warning.empty()) warning = busy_cores_warning(threads, host::usable_cores());
        if (!warning.empty()) log::warn(warning);
    }
    return threads > 0 ? threads : thread_share(sets, static_cast<std::size_t>(node->rank()), host::core_quota());
}

}  // namespace atl::train
