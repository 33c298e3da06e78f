#include "trainer/comm/rank_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "shared/log/warn.h"
#include "trainer/comm/wait_text.h"

namespace atl::comm {
namespace {

constexpr double kLookInterval_s = 0.1;
constexpr double kAnswerTime_s = 2;  // within which every rank that waits has answered
constexpr int kNamedMax = 8;

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "rank 1", "ranks 1, 4 and 7 more": those in that state; how many they are.
template <class State>
std::pair<int, std::string> name_ranks(const std::vector<State>& states, State state) {
    std::string list;
    int count = 0;
    for (std::size_t rank = 0; rank < states.size(); ++rank) {
        if (states[rank] != state) continue;
        if (count < kNamedMax) list += (count == 0 ? "" : ", ") + std::to_string(rank);
        ++count;
    }
    if (count > kNamedMax) list += " and " + std::to_string(count - kNamedMax) + " more";
    return {count, (count == 1 ? "rank " : "ranks ") + list};
}

}  // namespace

RankWatch::RankWatch(double limit_s) : limit_s_(limit_s) {
    MPI_Comm_dup(MPI_COMM_WORLD, &world_);
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
}

RankWatch::~RankWatch() {
    MPI_Comm_free(&world_);
}

void RankWatch::wait(MPI_Request& request, const Awaited& awaited) {
    int is_done = 0;
    const auto test = [&] {
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        return is_done != 0;
    };
    if (test()) return;
    poll(test, awaited, Answer::kWaits);
    waited_s_ += now_s() - began_s_;
}

void RankWatch::wait_until(const std::function<bool()>& is_done, const Awaited& awaited) {
    if (is_done()) return;
    const auto look_again = [&] {
        std::this_thread::sleep_for(kDeviceInterval);
        return is_done();
    };
    poll(look_again, awaited, Answer::kWaitsForDevice);
}

template <class IsDone>
void RankWatch::poll(const IsDone& is_done, const Awaited& awaited, Answer own) {
    own_ = own;
    began_s_ = now_s();
    begin_anew();
    double next_look_s = began_s_ + kLookInterval_s;
    do {
        if (now_s() < next_look_s) continue;
        look(awaited);
        next_look_s = now_s() + kLookInterval_s;
    } while (!is_done());
}

void RankWatch::tell_work(std::string_view what) {
    work_ = what;
    if (what.empty() || now_s() < next_answer_s_) return;
    answer(Answer::kWorks);
    next_answer_s_ = now_s() + kLookInterval_s;
}

void RankWatch::begin_anew() {
    quiet_since_s_ = now_s();
    asked_ = 0;
}

void RankWatch::look(const Awaited& awaited) {
    answer(own_);
    if (limit_s_ <= 0) return;
    const double quiet_s = now_s() - quiet_since_s_;
    if (asked_ < 2 && quiet_s >= (asked_ == 0 ? limit_s_ / 2 : limit_s_)) ask();
    take_answers();
    const double since_s = now_s() - asked_s_;
    if (asked_ < 2 || since_s < kAnswerTime_s) return;
    // The lowest of those who wait tells, or this rank when that one does not: it may wait for less time.
    const auto lowest = std::ranges::find_if(answered_, [](Answer answer) { return answer != Answer::kNone; });
    const bool is_lowest = lowest == answered_.begin() + rank_;
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

void RankWatch::answer(Answer own) {
    take_messages(kQuestionTag, [&](int from, int question) {
        MPI_Send(&question, 1, MPI_INT, from, tag_of(own), world_);  // who asked takes it
    });
}

void RankWatch::ask() {
    ++questions_;
    ++asked_;
    asked_s_ = now_s();
    answered_.assign(static_cast<std::size_t>(size_), Answer::kNone);
    answered_[static_cast<std::size_t>(rank_)] = own_;
    for (int rank = 0; rank < size_; ++rank) {
        if (rank == rank_) continue;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Isend(&questions_, 1, MPI_INT, rank, kQuestionTag, world_, &request);
        MPI_Request_free(&request);  // a rank that has died never takes it
    }
}

void RankWatch::take_answers() {
    take_messages(tag_of(Answer::kWorks), [&](int, int) { begin_anew(); });
    for (const Answer answer : {Answer::kWaits, Answer::kWaitsForDevice}) {
        take_messages(tag_of(answer), [&](int from, int question) {
            if (question == questions_) answered_[static_cast<std::size_t>(from)] = answer;
        });
    }
}

std::string RankWatch::tell_answers() const {
    const auto [silent, silent_ranks] = name_ranks(answered_, Answer::kNone);
    if (silent > 0)
        return silent_ranks + (silent == 1 ? " does" : " do") + " not answer: dead, standing still, or far behind";
    const auto [on_device, device_ranks] = name_ranks(answered_, Answer::kWaitsForDevice);
    if (on_device == 0) return "all ranks answer, so what they exchange is held up between them";
    return "all ranks answer, and " + device_ranks +
           (on_device == 1 ? " waits for its device" : " wait for their devices");
}

void RankWatch::end_run(const Awaited& awaited) const {
    const std::string after = work_.empty() ? "" : " after " + std::string(work_);
    log::warn(wait_text(rank_, now_s() - began_s_, awaited) + after + "; " + tell_answers() + kLimitText);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
}

}  // namespace atl::comm
