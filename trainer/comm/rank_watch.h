#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <vector>

#include "trainer/comm/comm.h"

namespace atl::comm {

// Waits for MPI's requests on behalf of all groups of a process, counts the time, and ends the run when a wait lasts
// too long. To say then which ranks do not come it asks all of them: who waits answers at once, who has died, stands
// still or computes does not.
class RankWatch {
  public:
    // Over MPI's world; every rank makes one.
    RankWatch();
    RankWatch(const RankWatch&) = delete;
    RankWatch& operator=(const RankWatch&) = delete;
    ~RankWatch();

    void wait(MPI_Request& request, const Awaited& awaited);
    double waited_s() const { return waited_s_; }
    void limit(double seconds) { limit_s_ = seconds; }  // of one wait; 0: none

  private:
    void look(const Awaited& awaited, double waited_s);
    // handle(rank, question) of each message of that kind that is there.
    template <class Handle>
    void take_messages(int tag, const Handle& handle);
    void answer();
    void ask();
    void take_answers();
    [[noreturn]] void end_run(const Awaited& awaited, double waited_s) const;

    MPI_Comm world_ = MPI_COMM_NULL;  // for questions and answers alone
    int rank_ = 0;
    int size_ = 1;
    double limit_s_ = 0;
    double waited_s_ = 0;
    int questions_ = 0;           // that this rank has asked; an answer repeats which one it is to
    double asked_s_ = -1;         // after how long in this wait it asked; below 0: not yet
    std::vector<char> answered_;  // by rank
};

}  // namespace atl::comm
