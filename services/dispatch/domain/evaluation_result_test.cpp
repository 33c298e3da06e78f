#include "services/dispatch/domain/evaluation_result.h"

#include <gtest/gtest.h>

#include "services/dispatch/testing/task_steps.h"

namespace atl::dispatch {
namespace {

using json::Json;

const Json kGood = {{"loss", 2.0}, {"perplexity", 7.4}, {"tokens", 1000}};

Task evaluation() {
    Task task;
    task.id = "t1";
    task.job = "j1";
    task.facility = "karolina";
    task.attempts_max = 2;
    task.params = EvaluateParams{"it", "p", {{"g", "global"}, {"u", "leonardo"}, {"v", "karolina"}}};
    task = begin_attempt(task).task;
    task.attempt->step = Step::kRunning;
    return task;
}

// Models 0 and 2 have results.
Observed without_second(std::int64_t exit_code) {
    Observed seen = ended(exit_code, {kGood, {{"failed_with", exit_code}}, kGood});
    seen.model_failures[1] = "the weights are damaged";
    return seen;
}

TEST(EvaluationResultTest, AModelThatCannotBeEvaluatedCostsTheOthersNothing) {
    const TaskChange change = apply(evaluation(), without_second(2), kPollPolicy, 0);
    ASSERT_EQ(change.task.state, TaskState::kDone) << change.task.error;
    const Json& result = change.task.result;
    ASSERT_EQ(result.at("evaluations").size(), 2U) << result;
    EXPECT_EQ(result.at("evaluations").at(1).at("which"), "karolina");
    EXPECT_EQ(
        result.at("failed"),
        Json::array({{{"model", "u"}, {"which", "leonardo"}, {"error", "exit code 2: the weights are damaged"}}}));
    EXPECT_EQ(tell_failed_models(change.task),
              "karolina: 1 of 3 models was not evaluated: leonardo: exit code 2: the weights are damaged");
}

TEST(EvaluationResultTest, WhatMayGoBetterIsTriedAgainBeforePartOfItCounts) {
    TaskChange change = apply(evaluation(), without_second(1), kPollPolicy, 0);
    EXPECT_EQ(change.task.state, TaskState::kPending);
    Task again = begin_attempt(change.task).task;
    again.attempt->step = Step::kRunning;
    change = apply(again, without_second(1), kPollPolicy, 0);
    EXPECT_EQ(change.task.state, TaskState::kDone) << change.task.error;
    EXPECT_EQ(change.task.result.at("failed").size(), 1U);
}

TEST(EvaluationResultTest, WithoutAnyResultOrWithAModelUntoldItHasFailed) {
    const Json failed = {{"failed_with", 2}};
    for (const Observed& seen : {ended(2, {failed, failed, failed}), ended(2, {kGood, failed}), ended(2)}) {
        const TaskChange change = apply(evaluation(), seen, kPollPolicy, 0);
        EXPECT_EQ(change.task.state, TaskState::kFailed);
    }
    Task task = evaluation();
    task.result = {{"dataset", "it"}, {"evaluations", Json::array()}};
    EXPECT_EQ(tell_failed_models(task), "");
    EXPECT_EQ(tell_failed_models(train_task()), "");
}

// As when MPI_Finalize fails: its command has printed a result before it fails.
TEST(EvaluationResultTest, AModelWhoseCommandFailsAfterItsResultHasFailedAlone) {
    const std::vector<Json> lines = {
        kGood, {{"failed_with", 2}, {"place", 0}}, kGood, kGood, {{"failed_with", 2}, {"place", 2}}};
    EXPECT_EQ(failed_models(evaluation(), printed(lines)), (std::vector<std::size_t>{0, 2}));
    Observed seen = ended(2, lines);
    seen.model_failures[2] = "MPI_Finalize: no route";
    const TaskChange change = apply(evaluation(), seen, kPollPolicy, 0);
    ASSERT_EQ(change.task.state, TaskState::kDone) << change.task.error;
    ASSERT_EQ(change.task.result.at("evaluations").size(), 1U) << change.task.result;
    EXPECT_EQ(change.task.result.at("evaluations").at(0).at("which"), "leonardo");
    EXPECT_EQ(change.task.result.at("failed").at(1).at("error"), "exit code 2: MPI_Finalize: no route");
    // Its result and its end are read by different looks.
    Task task = evaluation();
    task.attempt->results = {*parse_evaluation_line(kGood)};
    seen = ended(2, {{{"failed_with", 2}, {"place", 0}}, kGood, kGood});
    EXPECT_EQ(apply(task, seen, kPollPolicy, 0).task.result.at("failed").at(0).at("which"), "global");
    for (const int place : {-1, 3}) {
        seen = ended(2, {kGood, kGood, kGood, {{"failed_with", 2}, {"place", place}}});
        EXPECT_NE(apply(evaluation(), seen, kPollPolicy, 0).task.state, TaskState::kDone) << place;
    }
}

TEST(EvaluationResultTest, WhatFailsWithoutAModelThatFailedHasFailedAsAWhole) {
    Task task = evaluation();
    task.attempts_max = 1;
    for (const int exit_code : {1, 2})
        EXPECT_EQ(apply(task, ended(exit_code, {kGood, kGood, kGood}), kPollPolicy, 0).task.state, TaskState::kFailed);
    std::get<EvaluateParams>(task.params).models.resize(1);
    EXPECT_EQ(apply(task, ended(1, {kGood}), kPollPolicy, 0).task.state, TaskState::kFailed);
}

TEST(EvaluationResultTest, WhichModelsFailedIsToldByThePlacesOfTheLines) {
    Task task = evaluation();
    task.attempt->results = {*parse_evaluation_line({{"failed_with", 2}})};
    EXPECT_EQ(failed_models(task, printed({{{"note", 1}}, kGood, {{"failed_with", 3}}})),
              (std::vector<std::size_t>{0, 2}));
    for (const int code : {0, 256}) EXPECT_FALSE(read_evaluation_line(Json({{"failed_with", code}}).dump()).ok());
}

}  // namespace
}  // namespace atl::dispatch
