#include "services/dispatch/domain/task.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

Attempt read_back(const Json& progress, std::int64_t number = 1) {
    Attempt attempt;
    attempt.number = number;
    read_progress(progress, attempt);
    return attempt;
}

TEST(TaskTest, TheProgressOfAnAttemptComesBackAsItWasKept) {
    Attempt training;
    training.continues = 1;
    training.failed_before = 2;
    training.step_failures = 3;
    training.log_offset = 4;
    training.log_lines = 5;
    training.partial_reads = 6;
    training.queue_misses = 7;
    training.missing_since_ms = 8;
    training.batch_asked_ms = 9;
    training.last_step = parse_step_line({{"step", 10}, {"loss", 2.5}});
    training.summary = parse_summary_line({{"summary", true}, {"steps", 10}, {"resumable", true}});
    ASSERT_TRUE(training.last_step && training.summary);
    EXPECT_EQ(progress_json(read_back(progress_json(training))), progress_json(training));
    EXPECT_TRUE(read_back(progress_json(training)).summary->resumable);
    Attempt evaluation;
    evaluation.results = {*parse_evaluation_line({{"loss", 2.0}, {"perplexity", 7.5}, {"tokens", 10}}),
                          *parse_evaluation_line({{"loss", 900.0}})};
    EXPECT_EQ(progress_json(read_back(progress_json(evaluation))), progress_json(evaluation));
    EXPECT_EQ(progress_json(read_back(progress_json(Attempt()))), progress_json(Attempt()));
}

TEST(TaskTest, WhatAnotherReleaseKeptIsReadAsFarAsItCanBe) {
    const Attempt older = read_back({{"step_failures", 1},
                                     {"log_offset", 100},
                                     {"lines", {{"summary", true}, {"samples", 5}, {"tokens", 7}}},
                                     {"last_step", {{"step", 3}, {"loss", 2.5}}},
                                     {"queue_misses", 0},
                                     {"missing_since_ms", 0},
                                     {"batch_asked_ms", 12}},
                                    3);
    EXPECT_EQ(older.failed_before, 2);
    EXPECT_EQ(older.log_offset, 100);
    EXPECT_EQ(older.summary->samples, 5);
    EXPECT_EQ(older.last_step->step, 3);
    const Json lines = Json::array({{{"perplexity", 2.5}}, 7, {{"perplexity", true}}});
    const Attempt odd = read_back({{"log_offset", "far"}, {"lines", lines}, {"last_step", 7}});
    EXPECT_EQ(odd.log_offset, 0);
    EXPECT_EQ(odd.results.size(), 3U) << "as many as there were";
    EXPECT_EQ(odd.results[0].perplexity, 2.5);
    EXPECT_FALSE(odd.last_step);
    EXPECT_EQ(progress_json(read_back(Json())), progress_json(Attempt()));
}

}  // namespace
}  // namespace atl::dispatch
