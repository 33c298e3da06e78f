#include "trainer/comm/launch.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "trainer/comm/mpi.h"

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

Result<std::unique_ptr<Comm>> open_world() {
    if (!started_as_ranks(process_environment)) {
        set_abort_handler([] { std::_Exit(1); });  // as with ranks: a GPU that fails is no signal
        return make_self();
    }
    const bool are_several = launched_processes(process_environment) > 1;  // before MPI, which sets variables too
    std::unique_ptr<Comm> world = make_mpi_world();
    if (are_several && world->size() == 1) {
        return invalid_argument("ranks",
                                "a launcher started several processes, but MPI sees each alone; use mpirun, or srun "
                                "with --mpi=pmix");
    }
    return world;
}

void abort_run(int code) {
    abort_mpi_world(code);
    std::_Exit(code);  // without what libraries do at an end, for which there may be no memory
}

}  // namespace atl::comm
