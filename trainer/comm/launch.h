#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/comm/comm.h"

namespace atl::comm {

using Environment = std::function<const char*(const char*)>;  // as getenv

// True when a launcher (mpirun, srun, a PMI or PMIx one) started this process, alone or with others. A Slurm batch
// script alone does not count: it runs once, whatever SLURM_NTASKS says.
bool started_by_launcher(const Environment& environment);

// True when it started this process as one of several ranks.
bool started_as_ranks(const Environment& environment);

// The local rank as the launcher's environment has it, and the variable that says so. That of the launcher which
// started the ranks: mpirun within a Slurm step or batch script inherits Slurm's, which is the same for all of them.
struct LauncherLocalRank {
    std::string variable;  // "SLURM_LOCALID"
    int rank = 0;
};
std::optional<LauncherLocalRank> launcher_local_rank(const Environment& environment);

// How many processes the launcher says that it started: 1 where none did, or it does not say.
int launcher_size(const Environment& environment);

// The rank as the launcher's environment has it, for what is said or done before MPI is there (or without it): 0 in a
// process that no launcher started as one of several, and where the launcher says nothing.
int launcher_rank(const Environment& environment);

// This process's own environment.
const char* process_environment(const char* name);

inline constexpr double kWaitLimit_s = 600;

// The group of all ranks of this run: MPI's world when a launcher started several, else this process alone (which
// never touches MPI: initialising it takes longer than a small command). limit_s: of each wait for other ranks, from
// the start of MPI on; see Comm::limit_waits. kInvalidArgument: several processes were started that MPI cannot see as
// one world.
Result<std::unique_ptr<Comm>> open_world(double limit_s = kWaitLimit_s);

// How many processes torchrun, or what sets its variables, says that it started: none of them is a rank of MPI by that.
// 1: none, or it does not say.
int torchrun_size(const Environment& environment);

// Whether as many ranks run as ATOLL_RANKS asks for, which whoever submits a training sets: a launcher that starts
// fewer would train on fewer rows a step. kInvalidArgument.
Status check_asked_ranks(int size, const Environment& environment);

// Ends every rank of this run at once with that exit code; what an exception does in main.
[[noreturn]] void abort_run(int code);

}  // namespace atl::comm
