#include "trainer/comm/launch.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "trainer/comm/mpi.h"
#include "trainer/comm/start_watch.h"

namespace atl::comm {
namespace {

long number(const Environment& environment, const char* name) {
    const char* text = environment(name);
    return text == nullptr ? 0 : std::strtol(text, nullptr, 10);
}

constexpr std::array kSizes = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
constexpr const char* kPmixRank = "PMIX_RANK";  // its size is known to MPI only

// How many processes the launcher says that it started; 0 where it does not say.
long launched_processes(const Environment& environment) {
    for (const char* size : kSizes) {
        if (environment(size) != nullptr) return number(environment, size);
    }
    return 0;
}

std::unique_ptr<Comm> connect_ranks(double limit_s) {
    const StartWatch watch(launcher_rank(process_environment), launcher_size(process_environment), limit_s);
    return make_mpi_world(limit_s);
}

}  // namespace

bool started_by_launcher(const Environment& environment) {
    const auto is_set = [&](const char* name) { return environment(name) != nullptr; };
    return is_set(kPmixRank) || std::ranges::any_of(kSizes, is_set);
}

bool started_as_ranks(const Environment& environment) {
    const long processes = launched_processes(environment);
    return processes > 1 || (processes == 0 && environment(kPmixRank) != nullptr);
}

std::optional<LauncherLocalRank> launcher_local_rank(const Environment& environment) {
    for (const char* rank : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"}) {
        if (environment(rank) != nullptr) return LauncherLocalRank{rank, static_cast<int>(number(environment, rank))};
    }
    return std::nullopt;
}

int launcher_size(const Environment& environment) {
    return static_cast<int>(std::max(1L, launched_processes(environment)));
}

int launcher_rank(const Environment& environment) {
    if (!started_as_ranks(environment)) return 0;
    for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", kPmixRank, "SLURM_PROCID"}) {
        if (environment(rank) != nullptr) return static_cast<int>(number(environment, rank));
    }
    return 0;
}

const char* process_environment(const char* name) {
    return std::getenv(name);
}

int torchrun_size(const Environment& environment) {
    if (environment("RANK") == nullptr) return 1;
    return static_cast<int>(std::max(1L, number(environment, "WORLD_SIZE")));
}

Result<std::unique_ptr<Comm>> open_world(double limit_s) {
    const bool are_ranks = started_as_ranks(process_environment);
    const bool are_several = launched_processes(process_environment) > 1;  // before MPI, which sets variables too
    if (!are_ranks) set_abort_handler([] { std::_Exit(1); });  // as with ranks: a GPU that fails is no signal
    std::unique_ptr<Comm> world = are_ranks ? connect_ranks(limit_s) : make_self();
    world->limit_waits(limit_s);
    if (world->size() > 1) return world;
    if (are_several) {
        return invalid_argument("ranks",
                                "a launcher started several processes, but MPI sees each alone; use mpirun, or srun "
                                "with --mpi=pmix");
    }
    if (const int processes = torchrun_size(process_environment); processes > 1) {
        return invalid_argument("ranks", "RANK and WORLD_SIZE say that this is one of " + std::to_string(processes) +
                                             " processes, as torchrun starts them, but to MPI it is alone: each would "
                                             "do the whole run. Start it with `mpirun -n " +
                                             std::to_string(processes) +
                                             " atoll-trainer …` or `srun --mpi=pmix atoll-trainer …`, or unset both "
                                             "variables for one process");
    }
    return world;
}

Status check_asked_ranks(int size, const Environment& environment) {
    const long asked = number(environment, "ATOLL_RANKS");
    if (asked == 0 || asked == size) return {};
    return invalid_argument("ranks", "ATOLL_RANKS asks for " + std::to_string(asked) + ", but the launcher started " +
                                         std::to_string(size) + ": make it start as many");
}

void abort_run(int code) {
    abort_mpi_world(code);
    std::_Exit(code);  // without what libraries do at an end, for which there may be no memory
}

}  // namespace atl::comm
