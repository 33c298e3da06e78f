#include "services/dispatch/domain/task.h"

#include <gtest/gtest.h>

#include <set>

namespace atl::dispatch {
namespace {

using json::Json;

Attempt read_back(const Json& progress) {
    Attempt attempt;
    EXPECT_TRUE(read_progress(progress, attempt).ok()) << progress;
    return attempt;
}

TEST(TaskTest, TheProgressOfAnAttemptComesBackAsItWasKept) {
    Attempt training;
    training.failed_before = 2;
    training.step_failures = 3;
    training.log_offset = 4;
    training.log_lines = 5;
    training.partial_reads = 6;
    training.queue_misses = 7;
    training.missing_since_ms = 8;
    training.batch_asked_ms = 9;
    training.looked_ms = 10;
    training.since_ms = 11;
    training.first_step = 12;
    training.begun_at_step = 7;
    training.continuation = "13";
    training.waiting = {"no quota", 12, 13};
    training.continuation_waiting = {"AssocMaxSubmitJobLimit", 14, 15};
    training.paced_from_step = 16;
    training.paced_from_ms = 17;
    training.not_ready_since_ms = 18;
    training.no_queue_since_ms = 19;
    training.log_tries = 2;
    training.last_step = parse_step_line({{"step", 10}, {"loss", 2.5}});
    training.summary = parse_summary_line({{"summary", true}, {"steps", 10}, {"resumable", true}});
    ASSERT_TRUE(training.last_step && training.summary);
    EXPECT_EQ(progress_json(read_back(progress_json(training))), progress_json(training));
    EXPECT_TRUE(read_back(progress_json(training)).summary->resumable);
    Attempt evaluation;
    evaluation.results = {*parse_evaluation_line({{"loss", 2.0}, {"perplexity", 7.5}, {"tokens", 10}}),
                          *parse_evaluation_line({{"loss", 900.0}}),
                          *parse_evaluation_line({{"failed_with", 2}, {"place", 2}})};
    EXPECT_EQ(progress_json(read_back(progress_json(evaluation))), progress_json(evaluation));
    EXPECT_EQ(progress_json(read_back(progress_json(Attempt()))), progress_json(Attempt()));
}

TEST(TaskTest, DamagedProgressIsAnErrorThatNamesTheMember) {
    const Json whole = progress_json(Attempt());
    const std::set<std::string> later = {"waiting",       "continuation_waiting", "paced_from_step",
                                         "paced_from_ms", "not_ready_since_ms",   "no_queue_since_ms",
                                         "log_tries",     "points_told",          "begun_at_step",
                                         "phases"};  // which earlier releases leave out
    Attempt attempt;
    for (const auto& [key, value] : whole.items()) {
        if (key == "lines" || key == "last_step") continue;
        Json damaged = whole;
        damaged[key] = value.is_string() ? Json(7) : Json("far");
        EXPECT_EQ(read_progress(damaged, attempt).error().field, "progress." + key);
        damaged.erase(key);
        if (later.contains(key)) continue;
        EXPECT_EQ(read_progress(damaged, attempt).error().field, "progress." + key);
    }
    EXPECT_EQ(read_progress(Json(7), attempt).error().code, ErrorCode::kInvalidArgument);
    Json lines = whole;
    lines["lines"] = Json::array({{{"perplexity", 2.5}}, 7, {{"perplexity", true}}});
    EXPECT_EQ(read_back(lines).results.size(), 3U) << "as many as there were";
}

}  // namespace
}  // namespace atl::dispatch
