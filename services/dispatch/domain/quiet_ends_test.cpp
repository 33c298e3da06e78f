#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "services/dispatch/domain/round_machine.h"

namespace atl::dispatch {
namespace {

using json::Json;

// A job of two rounds whose tasks end in any order, some without success, at sites of which some fall silent. Nothing
// comes too late, and who is silent has been so for longer than the graces.
class QuietEndsTest : public testing::Test {
  protected:
    // Plays it and looks at the job only where an end is not a quiet one; how often it did.
    int play(std::uint64_t seed, int participants, bool some_fall_silent) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        job_ = new_job(participants, random);
        quiet_.clear();
        apply(submit_job(job_, kNow_ms));
        int looks = 0;
        while (!is_finished(job_.state)) {
            if (job_.round.state == RoundState::kAggregating) {
                apply(
                    apply_aggregation(job_, {job_.round.number, "g" + std::to_string(job_.round.number), ""}, kNow_ms));
                apply(advance_job(job_, kNow_ms));  // who is silent is asked for the new tasks, too
                continue;
            }
            Task* task = choose_unfinished(random);
            if (task == nullptr) break;
            if (some_fall_silent && random() % 16 == 0) {
                job_.waiting_since_ms[task->facility] = kNow_ms - 2 * kGrace_s * 1000;
                apply(advance_job(job_, kNow_ms));
                continue;
            }
            task->state = random() % 32 == 0 ? TaskState::kFailed : TaskState::kDone;
            task->result = {{"version", "v"}, {"samples", 10}, {"tokens", 100}, {"evaluations", Json::array()}};
            const JobDecision decision = advance_job(job_, kNow_ms);
            if (is_quiet(*task)) {
                EXPECT_FALSE(changes_something(decision));
                if (testing::Test::HasFailure()) break;
                continue;
            }
            ++looks;
            apply(decision);
        }
        EXPECT_TRUE(is_finished(job_.state));
        return looks;
    }

  private:
    static constexpr std::int64_t kNow_ms = 0;

    static JobView new_job(int participants, std::mt19937_64& random) {
        JobView job;
        job.id = "j";
        job.base = "base";
        job.spec.name = "n";
        job.spec.rounds = 2;
        job.spec.training = Json::object();
        for (int i = 0; i < participants; ++i) {
            Participant one;
            one.data.facility = "f" + std::to_string(i);
            job.spec.participants.push_back(one);
            if (random() % 2 == 0) job.spec.evaluation_copies.push_back(one.data);
        }
        if (random() % 2 == 0)
            job.spec.quorum = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(participants));
        return job;
    }
    // Plays the database.
    void apply(const JobDecision& decision) {
        if (decision.job_state) job_.state = *decision.job_state;
        for (const Round& round : decision.rounds) {
            std::erase_if(job_.closed, [&](const Round& known) { return known.number == round.number; });
            if (round.state == RoundState::kClosed && !round.evaluated) job_.closed.push_back(round);
            if (round.number >= job_.round.number) job_.round = round;
            quiet_[round.number] = {};
        }
        for (const auto& [round, ends] : decision.quiet_ends) quiet_[round] = ends;
        for (Task task : decision.new_tasks) {
            task.id = "t" + std::to_string(job_.tasks.size());
            job_.tasks.push_back(task);
        }
    }
    Task* choose_unfinished(std::mt19937_64& random) {
        std::vector<Task*> left;
        for (Task& task : job_.tasks)
            if (!is_finished(task.state) && task.kind() != TaskKind::kClean) left.push_back(&task);
        return left.empty() ? nullptr : left[random() % left.size()];
    }
    // Counts the end of the task as the database does.
    bool is_quiet(const Task& task) {
        const bool trains = task.kind() == TaskKind::kTrain;
        const bool is_waited_for = trains ? task.round == job_.round.number && job_.round.state == RoundState::kTraining
                                          : std::any_of(job_.closed.begin(), job_.closed.end(),
                                                        [&](const Round& round) { return round.number == task.round; });
        if (!is_waited_for) return true;
        QuietEnds& left = quiet_[task.round];
        const int losses = task.state == TaskState::kDone ? 0 : 1;
        if (left.ends == 0 || left.losses < losses) return false;
        left = {left.ends - 1, left.losses - losses};
        return true;
    }
    static bool changes_something(const JobDecision& decision) {
        return decision.job_state || !decision.rounds.empty() || !decision.new_tasks.empty() ||
               !decision.cancelled_tasks.empty() || !decision.events.empty();
    }

    JobView job_;
    std::map<std::int64_t, QuietEnds> quiet_;
};

TEST_F(QuietEndsTest, AQuietEndIsOneThatWouldHaveChangedNothing) {
    for (std::uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed)
        play(seed, 1 + static_cast<int>(seed % 12), true);
}

TEST_F(QuietEndsTest, AJobIsLookedAtAFewTimesARoundHoweverManyTakePart) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) EXPECT_LT(play(seed, 200, false), 30);
}

}  // namespace
}  // namespace atl::dispatch
