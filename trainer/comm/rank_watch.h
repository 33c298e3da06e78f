#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/comm/comm.h"

namespace atl::comm {

// Waits for MPI's requests on behalf of all groups of a process, counts the time, and ends the run when a wait lasts
// too long. To say then which ranks do not come it asks all of them: who waits answers at once, who has died, stands
// still or computes does not. Who works alone and gets on says so (Comm::tell_work), and is waited for anew. As a piece
// of such work may be long, it is asked at half the limit already.
class RankWatch {
  public:
    // Over MPI's world; every rank makes one, in the first exchange of all ranks (see StartWatch). limit_s: see
    // limit().
    explicit RankWatch(double limit_s);
    RankWatch(const RankWatch&) = delete;
    RankWatch& operator=(const RankWatch&) = delete;
    ~RankWatch();

    void wait(MPI_Request& request, const Awaited& awaited);
    // The same for what this rank's device does; see Comm::wait_until.
    void wait_until(const std::function<bool()>& is_done, const Awaited& awaited);
    double waited_s() const { return waited_s_; }
    void limit(double seconds) { limit_s_ = seconds; }  // of one wait; 0: none
    void tell_work(std::string_view what);              // see Comm

  private:
    enum class Answer : std::uint8_t { kNone, kWaits, kWaitsForDevice, kWorks };
    static int tag_of(Answer answer) { return kQuestionTag + static_cast<int>(answer); }
    static constexpr int kQuestionTag = 1;
    // Until is_done(), with a look at the other ranks now and then. `own` is what this rank answers meanwhile.
    template <class IsDone>
    void poll(const IsDone& is_done, const Awaited& awaited, Answer own);
    void look(const Awaited& awaited);
    // handle(rank, question) of each message of that kind that is there.
    template <class Handle>
    void take_messages(int tag, const Handle& handle);
    void answer(Answer own);
    void ask();
    void take_answers();
    void begin_anew();  // to count the wait
    // "rank 3 does not answer: …"
    std::string tell_answers() const;
    [[noreturn]] void end_run(const Awaited& awaited) const;

    MPI_Comm world_ = MPI_COMM_NULL;  // for questions and answers alone
    int rank_ = 0;
    int size_ = 1;
    double limit_s_ = 0;
    double waited_s_ = 0;
    double began_s_ = 0;            // this wait, on the steady clock
    double quiet_since_s_ = 0;      // no rank has said since then that it works
    int questions_ = 0;             // that this rank has asked; an answer repeats which one it is to
    int asked_ = 0;                 // times since then
    double asked_s_ = 0;            // the last time, on the steady clock
    std::vector<Answer> answered_;  // by rank, those that wait
    Answer own_ = Answer::kWaits;   // in this wait
    std::string_view work_;         // of this rank; empty: none
    double next_answer_s_ = 0;      // while it works, on the steady clock
};

}  // namespace atl::comm
