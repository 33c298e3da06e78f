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
    began_s_ = now_s();
    begin_anew();
    double next_look_s = began_s_ + kLookInterval_s;
    while (is_done == 0) {
        if (now_s() >= next_look_s) {
            look(awaited);
            next_look_s = now_s() + kLookInterval_s;
        }
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    }
    waited_s_ += now_s() - began_s_;
}

void RankWatch::tell_work(std::string_view what) {
    work_ = what;
    if (what.empty() || now_s() < next_answer_s_) return;
    answer(Doing::kWorks);
    next_answer_s_ = now_s() + kLookInterval_s;
}

void RankWatch::begin_anew() {
    quiet_since_s_ = now_s();
    asked_ = 0;
}

void RankWatch::look(const Awaited& awaited) {
    answer(Doing::kWaits);
    if (limit_s_ <= 0) return;
    const double quiet_s = now_s() - quiet_since_s_;
    if (asked_ < 2 && quiet_s >= (asked_ == 0 ? limit_s_ / 2 : limit_s_)) ask();
    take_answers();
    const double since_s = now_s() - asked_s_;
    if (asked_ < 2 || since_s < kAnswerTime_s) return;
    // The lowest of those who wait tells, or this rank when that one does not: it may wait for less time.
    const bool is_lowest = std::find(answered_.begin(), answered_.end(), 1) == answered_.begin() + rank_;
    if (is_lowest || since_s > 5 * kAnswerTime_s) end_run(awaited);
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

void RankWatch::answer(Doing doing) {
    take_messages(kQuestionTag, [&](int from, int question) {
        const int told = doing == Doing::kWaits ? question : -question;
        MPI_Send(&told, 1, MPI_INT, from, kAnswerTag, world_);  // who asked takes it
    });
}

void RankWatch::ask() {
    ++questions_;
    ++asked_;
    asked_s_ = now_s();
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
    take_messages(kAnswerTag, [&](int from, int told) {
        if (told < 0) begin_anew();
        if (told == questions_) answered_[static_cast<std::size_t>(from)] = 1;
    });
}

void RankWatch::end_run(const Awaited& awaited) const {
    std::string message = "rank " + std::to_string(rank_) + " has waited " +
                          std::to_string(static_cast<std::int64_t>(now_s() - began_s_)) + " s for " +
                          std::string(awaited.what);
    if (!awaited.unit.empty()) message += " of " + std::string(awaited.unit);
    message += " (" + std::string(awaited.collective) + ")";
    if (!work_.empty()) message += " after " + std::string(work_);
    message += "; " + tell_silent(answered_) + ". More than --collective-timeout ends the run";
    log::warn(message);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
}

}  // namespace atl::comm
