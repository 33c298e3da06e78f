#include "trainer/comm/rank_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "shared/log/warn.h"

namespace atl::comm {
namespace {

constexpr double kLookInterval_s = 0.1;
constexpr double kAnswerTime_s = 2;  // within which every rank that waits has answered
constexpr int kQuestionTag = 1, kAnswerTag = 2;
constexpr int kNamedMax = 8;

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "ranks 1, 4 do not answer"
std::string tell_silent(const std::vector<char>& answered) {
    std::string list;
    int silent = 0;
    for (std::size_t rank = 0; rank < answered.size(); ++rank) {
        if (answered[rank] != 0) continue;
        if (silent < kNamedMax) list += (silent == 0 ? "" : ", ") + std::to_string(rank);
        ++silent;
    }
    if (silent == 0) return "all ranks answer, so what they exchange is held up between them";
    if (silent > kNamedMax) list += " and " + std::to_string(silent - kNamedMax) + " more";
    return (silent == 1 ? "rank " + list + " does" : "ranks " + list + " do") +
           " not answer: dead, standing still, or far behind";
}

}  // namespace

RankWatch::RankWatch() {
    MPI_Comm_dup(MPI_COMM_WORLD, &world_);
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
}

RankWatch::~RankWatch() {
    MPI_Comm_free(&world_);
}

void RankWatch::wait(MPI_Request& request, const Awaited& awaited) {
    int is_done = 0;
    MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    if (is_done != 0) return;
    const double began_s = now_s();
    double next_look_s = began_s + kLookInterval_s;
    asked_s_ = -1;
    while (is_done == 0) {
        if (now_s() >= next_look_s) {
            look(awaited, now_s() - began_s);
            next_look_s = now_s() + kLookInterval_s;
        }
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    }
    waited_s_ += now_s() - began_s;
}

void RankWatch::look(const Awaited& awaited, double waited_s) {
    answer();
    if (limit_s_ <= 0 || waited_s < limit_s_) return;
    if (asked_s_ < 0) {
        ask();
        asked_s_ = waited_s;
    }
    take_answers();
    const double since_s = waited_s - asked_s_;
    if (since_s < kAnswerTime_s) return;
    // The lowest of those who wait tells, or this rank when that one does not: it may wait for less time.
    const bool is_lowest = std::find(answered_.begin(), answered_.end(), 1) == answered_.begin() + rank_;
    if (is_lowest || since_s > 5 * kAnswerTime_s) end_run(awaited, waited_s);
}

template <class Handle>
void RankWatch::take_messages(int tag, const Handle& handle) {
    for (int is_there = 0;;) {
        MPI_Status status;
        MPI_Iprobe(MPI_ANY_SOURCE, tag, world_, &is_there, &status);
        if (is_there == 0) return;
        int question = 0;
        MPI_Recv(&question, 1, MPI_INT, status.MPI_SOURCE, tag, world_, MPI_STATUS_IGNORE);
        handle(status.MPI_SOURCE, question);
    }
}

void RankWatch::answer() {
    take_messages(kQuestionTag, [&](int from, int question) {
        MPI_Send(&question, 1, MPI_INT, from, kAnswerTag, world_);  // who asked takes it
    });
}

void RankWatch::ask() {
    ++questions_;
    answered_.assign(static_cast<std::size_t>(size_), 0);
    answered_[static_cast<std::size_t>(rank_)] = 1;
    for (int rank = 0; rank < size_; ++rank) {
        if (rank == rank_) continue;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Isend(&questions_, 1, MPI_INT, rank, kQuestionTag, world_, &request);
        MPI_Request_free(&request);  // a rank that has died never takes it
    }
}

void RankWatch::take_answers() {
    take_messages(kAnswerTag, [&](int from, int question) {
        if (question == questions_) answered_[static_cast<std::size_t>(from)] = 1;
    });
}

void RankWatch::end_run(const Awaited& awaited, double waited_s) const {
    std::string message = "rank " + std::to_string(rank_) + " has waited " +
                          std::to_string(static_cast<std::int64_t>(waited_s)) + " s for " + std::string(awaited.what);
    if (!awaited.unit.empty()) message += " of " + std::string(awaited.unit);
    message += " (" + std::string(awaited.collective) + "); " + tell_silent(answered_) +
               ". More than --collective-timeout ends the run";
    log::warn(message);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
}

}  // namespace atl::comm
