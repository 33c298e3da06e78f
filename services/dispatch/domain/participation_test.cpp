#include <gtest/gtest.h>

#include <algorithm>

#include "services/dispatch/domain/round_machine.h"
#include "services/dispatch/testing/job_rounds.h"

namespace atl::dispatch {
namespace {

const std::string kWhy = "the facility \"b\" is not for jobs of \"bob\" any more";

// A job whose first round is with the aggregation when its owner is no longer allowed at "b".
JobView job_that_lost_b(std::optional<std::int64_t> quorum) {
    JobView job = new_job();
    if (quorum) job.spec.quorum = *quorum;
    job.spec.evaluation_copies = {job.spec.participants[0].data, job.spec.participants[1].data};
    take(job, submit_job(job, 0));
    for (const char* facility : {"a", "b"}) {
        Task& task = task_of(job, TaskKind::kTrain, 1, facility);
        task.state = TaskState::kDone;
        task.result = {{"version", std::string("u") + facility}, {"samples", 10}, {"tokens", 100}};
    }
    take(job, advance_job(job, 0));
    job.disallowed["b"] = kWhy;
    return job;
}

std::vector<std::string> begun_at(const JobDecision& decision, TaskKind kind) {
    std::vector<std::string> facilities;
    for (const Task& task : decision.new_tasks)
        if (task.kind() == kind) facilities.push_back(task.facility);
    return facilities;
}

const DomainEvent* find_event(const JobDecision& decision, const std::string& type) {
    const auto found = std::find_if(decision.events.begin(), decision.events.end(),
                                    [&](const DomainEvent& event) { return event.type == type; });
    return found == decision.events.end() ? nullptr : &*found;
}

TEST(ParticipationTest, AFacilityThatIsNotForTheJobAnyMoreIsLeftOutWhereTheQuorumHolds) {
    JobView job = job_that_lost_b(1);
    const JobDecision decision = apply_aggregation(job, {1, "g1", ""}, 0);
    EXPECT_FALSE(decision.job_state);
    EXPECT_EQ(begun_at(decision, TaskKind::kTrain), std::vector<std::string>{"a"});
    EXPECT_EQ(begun_at(decision, TaskKind::kEvaluate), std::vector<std::string>{"a"});
    const DomainEvent* told = find_event(decision, "atoll.participant.left_out.v1");
    ASSERT_NE(told, nullptr);
    EXPECT_EQ(told->data.at("error"), kWhy);
    take(job, decision);
    task_of(job, TaskKind::kTrain, 2, "a").state = TaskState::kDone;
    task_of(job, TaskKind::kTrain, 2, "a").result = {{"version", "u"}, {"samples", 10}, {"tokens", 100}};
    take(job, advance_job(job, 0));
    EXPECT_EQ(job.round.state, RoundState::kAggregating);
    EXPECT_EQ(find_event(apply_aggregation(job, {2, "g2", ""}, 0), "atoll.participant.left_out.v1"), nullptr)
        << "it is told once";
}

// Where a job trains for epochs the rows that a site says that it has are its steps.
TEST(ParticipationTest, AnUpdateOfManyRowsIsComparedAsOneOfManySteps) {
    const auto assigned = [](const std::vector<std::int64_t>& rows) {
        JobView job = new_job();
        job.spec.training = {{"epochs", 1}, {"batch_size", 8}, {"lr", 1}};
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (i == 2) job.spec.participants.push_back(job.spec.participants[0]);
            DatasetCopy& data = job.spec.participants[i].data;
            data.facility = std::string(1, static_cast<char>('a' + i));
            data.rows = rows[i];
            data.seq_len = 128;
        }
        take(job, submit_job(job, 0));
        for (const Participant& one : job.spec.participants) train(job, 1, one.data.facility);
        take(job, advance_job(job, 0));
        std::vector<aggregate::Assignment> all;
        const json::Json round = closed_round(job);
        for (const json::Json& update : round.at("updates"))
            all.push_back(aggregate::parse_assignment(update.at("assigned"), "assigned").value());
        return all;
    };
    const auto two = assigned({1588, 22});
    EXPECT_NEAR(two[0].effort / two[1].effort, 199.0 / 3, 1) << "of two neither is the usual one";
    EXPECT_EQ(two[0].tokens, two[1].tokens) << "it weighs no more";
    const auto three = assigned({1588, 22, 20});
    EXPECT_NEAR(three[0].effort / three[1].effort, 10, 1);
    EXPECT_NEAR(three[0].element_max / three[1].element_max, 199.0 / 3, 1);
}

// At a site that never evaluates, of 900 data sets there.
TEST(ParticipationTest, EvaluationsThatComeSlowerThanRoundsAreBounded) {
    JobView job = new_job();
    job.spec.rounds = 20;
    for (int i = 0; i < 900; ++i) {
        job.spec.evaluation_copies.push_back(job.spec.participants[0].data);
        job.spec.evaluation_copies.back().dataset = "d" + std::to_string(i);
    }
    take(job, submit_job(job, 0));
    for (std::int64_t round = 1; round <= 8; ++round) {
        train_both(job);
        take(job, apply_aggregation(job, {round, "g" + std::to_string(round), ""}, 0));
        const JobDecision decision = advance_job(job, 0);
        for (const std::string& id : decision.cancelled_tasks)
            std::ranges::find(job.tasks, id, &Task::id)->state = TaskState::kCancelled;
        take(job, decision);
    }
    const auto open = [&](std::int64_t round) {
        return std::ranges::count_if(job.tasks, [&](const Task& task) {
            return task.kind() == TaskKind::kEvaluate && !is_finished(task.state) && task.round == round;
        });
    };
    for (std::int64_t round = 0; round <= 8; ++round) EXPECT_EQ(open(round), round < 5 ? 0 : 902) << round;
    EXPECT_EQ(job.closed.size(), 4U);
}

// That of a site that is cut off, or whose update was sound, is not lost by it.
TEST(ParticipationTest, ARoundThatABadUpdateSpoiltIsTrainedAgain) {
    JobView job = new_job();
    job.spec.quarantine_after = 2;
    take(job, submit_job(job, 0));
    for (const std::int64_t round : {1, 2}) {
        for (const char* facility : {"a", "b"}) {
            Task& task = task_of(job, TaskKind::kTrain, round, facility);
            task.state = TaskState::kDone;
            task.result = {{"version", std::string("u") + facility}, {"samples", 10}, {"tokens", 100}};
        }
        take(job, advance_job(job, 0));
        const std::string bad = task_of(job, TaskKind::kTrain, round, "b").id;
        const JobDecision decision = apply_aggregation(job, {round, "", "1 of 2 updates is left", {{bad, "NaN"}}}, 0);
        if (round == 2) {
            EXPECT_EQ(decision.job_state, JobState::kFailed) << "b is in quarantine now";
            break;
        }
        EXPECT_FALSE(decision.job_state);
        EXPECT_EQ(begun_at(decision, TaskKind::kTrain), (std::vector<std::string>{"a", "b"}));
        EXPECT_EQ(decision.rounds.front().state, RoundState::kFailed);
        EXPECT_TRUE(decision.rounds.front().error.ends_with("; round 2 trains again")) << decision.rounds.front().error;
        take(job, decision);
        EXPECT_EQ(job.round.number, 2);
        EXPECT_EQ(job.round.index, 1);
        EXPECT_EQ(job.round.base, job.base);
    }
    JobView rotten = new_job();
    take(rotten, submit_job(rotten, 0));
    rotten.round.state = RoundState::kAggregating;
    EXPECT_EQ(apply_aggregation(rotten, {1, "", "no reason of a site"}, 0).job_state, JobState::kFailed);
}

TEST(ParticipationTest, WhoHasNoUpdateIsNamedWhereTheStrategyCountsIt) {
    JobView job = new_job();
    job.spec.quorum = 1;
    take(job, submit_job(job, 0));
    task_of(job, TaskKind::kTrain, 1, "b").state = TaskState::kFailed;
    Task& trained = task_of(job, TaskKind::kTrain, 1, "a");
    trained.state = TaskState::kDone;
    trained.result = {{"version", "ua"}, {"samples", 10}, {"tokens", 100}};
    const auto closed = [](const JobView& view) {
        const JobDecision decision = advance_job(view, 0);
        const DomainEvent* event = find_event(decision, "atoll.round.closed.v1");
        return event == nullptr ? json::Json() : event->data;
    };
    EXPECT_FALSE(closed(job).contains("missing"));
    job.spec.strategy.counts_absent = true;
    EXPECT_EQ(closed(job).at("missing"), json::Json({"b"}));
    job.disallowed["b"] = kWhy;
    EXPECT_EQ(closed(job).at("missing"), json::Json::array()) << "who no longer takes part holds nothing back";
}

TEST(ParticipationTest, WithoutAQuorumTheJobPausesUntilItIsAllowedAgainOrGoesOnWithout) {
    JobView job = job_that_lost_b(std::nullopt);
    const JobDecision decision = apply_aggregation(job, {1, "g1", ""}, 0);
    EXPECT_EQ(decision.job_state, JobState::kPaused);
    EXPECT_NE(decision.job_error.find(kWhy), std::string::npos) << decision.job_error;
    ASSERT_NE(find_event(decision, "atoll.job.paused.v1"), nullptr);
    EXPECT_TRUE(begun_at(decision, TaskKind::kTrain).empty());
    take(job, decision);
    Round base;
    base.state = RoundState::kClosed;
    base.version = job.base;
    const std::vector<Round> rounds = {base, job.round};
    const auto refused = resume_job(job, rounds, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    const auto without = resume_job(job, rounds, {.without = {"b"}});
    ASSERT_TRUE(without.ok()) << without.error().message;
    EXPECT_EQ(begun_at(*without, TaskKind::kTrain), std::vector<std::string>{"a"});
    job.disallowed.clear();
    const auto resumed = resume_job(job, rounds, {});
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    EXPECT_EQ(begun_at(*resumed, TaskKind::kTrain), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(resumed->job_error, "");
}

TEST(ParticipationTest, ARoundGoesOnWithoutWhatIsUnderWayWhereTheJobIsNotAllowedAnyMore) {
    JobView job = new_job();
    take(job, submit_job(job, 0));
    job.state = JobState::kPaused;
    EXPECT_TRUE(resume_round(job)->cancelled_tasks.empty());
    job.disallowed["b"] = kWhy;
    const auto refused = resume_round(job);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(kWhy), std::string::npos) << refused.error().message;
    job.spec.quorum = 1;
    const auto resumed = resume_round(job);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    std::vector<std::string> ended;
    for (const Task& task : job.tasks)
        if (task.facility == "b") ended.push_back(task.id);
    EXPECT_EQ(resumed->cancelled_tasks, ended) << "the training and the evaluation of the base";
    EXPECT_EQ(resumed->reasons.at(ended.at(0)), kWhy);
    task_of(job, TaskKind::kTrain, 1, "b").state = TaskState::kDone;
    job.spec.quorum = 2;
    EXPECT_TRUE(resume_round(job).ok()) << "what was handed in before counts";
}

}  // namespace
}  // namespace atl::dispatch
