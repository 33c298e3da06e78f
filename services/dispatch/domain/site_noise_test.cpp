#include "services/dispatch/testing/site_noise.h"

#include <gtest/gtest.h>

#include "services/dispatch/domain/job_spec.h"
#include "services/dispatch/domain/round_machine.h"
#include "shared/digest/digest.h"
#include "shared/site/prepared_data.h"

namespace atl::dispatch {
namespace {

constexpr std::uint64_t kSeed = 20'260'301;

TEST(SiteNoiseTest, NothingThatASitePrintsThrowsOrLeavesWhatTheDatabaseCannotHold) {
    Noise noise(kSeed);
    Task task = noisy_task(noise);
    std::map<std::string, int> ends;
    for (int i = 0; i < 20'000; ++i) {
        TaskChange change = noisy_change(noise, task);
        const Json kept = kept_of(change);
        ASSERT_EQ(fault_of(kept), "") << "seed " << kSeed << ", look " << i << ": "
                                      << kept.dump(2, ' ', true, Json::error_handler_t::replace);
        ASSERT_LT(kept.dump().size(), 16U << 10) << "seed " << kSeed << ", look " << i;
        ++ends[to_string(change.task.attempt->step)];
        task = goes_on(change.task) && !noise.one_in(20) ? std::move(change.task) : noisy_task(noise);
    }
    for (const char* end : {"running", "collecting", "done", "failed"})
        EXPECT_GT(ends[end], 50) << "seed " << kSeed << ": too seldom " << end;
}

TEST(SiteNoiseTest, NoFileOfASiteIsReadAsMoreThanItMayBe) {
    Noise noise(kSeed);
    int digests = 0;
    int refusals = 0;
    int splits = 0;
    for (int i = 0; i < 20'000; ++i) {
        const std::string text = noise.file();
        const std::int64_t exit_code = read_exit_code(text);
        ASSERT_TRUE(exit_code >= 0 && exit_code <= 255) << text;
        if (const auto answer = read_push_answer(text)) {
            ASSERT_TRUE(answer->error || digest::is_sha256(answer->digest)) << text;
            const std::string why = answer->error ? json::printable(describe(*answer->error)) : "";
            ASSERT_EQ(fault_of(why), "") << text;
            ++(answer->error ? refusals : digests);
        }
        const auto split = site::read_data_json(text, "train.data.json");
        if (!split.ok()) {
            ASSERT_EQ(fault_of(json::printable(describe(split.error()))), "") << text;
            continue;
        }
        ++splits;
        ASSERT_TRUE(digest::is_sha256(split->fingerprint) && digest::is_sha256(split->tokenizer_sha256)) << text;
        ASSERT_TRUE(split->rows >= 0 && split->tokens >= 0 && split->documents >= 0 && split->seq_len > 0) << text;
    }
    EXPECT_GT(digests, 100) << "seed " << kSeed;
    EXPECT_GT(refusals, 100) << "seed " << kSeed;
    EXPECT_GT(splits, 100) << "seed " << kSeed;
}

// Rows that another release has written, or somebody's hand: an error or what they say, never more.
TEST(SiteNoiseTest, NoDocumentOfARowThrows) {
    Noise noise(kSeed);
    const Json spec = {{"name", "fortunes"},
                       {"model", {{"name", "tiny"}, {"version", "base"}}},
                       {"output_model", "fortunes"},
                       {"participants",
                        {{{"facility", "leonardo"},
                          {"dataset", "it"},
                          {"dataset_version", 1},
                          {"path", "p"},
                          {"rows", 100},
                          {"seq_len", 128},
                          {"resources", {{"nodes", 1}}}}}},
                       {"rounds", 2},
                       {"training", {{"steps", 3}, {"lr", 0.1}}},
                       {"evaluation", {{"at", Json::array()}}}};
    ASSERT_TRUE(parse_job_spec(spec, JobSource::kDatabase).ok());
    const Json params =
        to_json(TaskParams(TrainParams{"b", "o", {}, "d", 1, "p", 100, 128, "", {}, 0, {{"steps", 3}}}));
    const Json progress = progress_json(noisy_change(noise, noisy_task(noise)).task.attempt.value());
    const Json refused = {{{"task", "t1"}, {"reason", "NaN"}}};
    const Json result = {{"version", std::string(64, 'a')}, {"samples", 1}, {"tokens", 1}};
    int read = 0;
    for (int i = 0; i < 20'000; ++i) {
        Attempt attempt;
        const Status statuses[] = {
            parse_job_spec(noise.bent_document(spec), JobSource::kDatabase).ok() ? Status()
                                                                                 : internal_error("no specification"),
            parse_task_params(TaskKind::kTrain, noise.bent_document(params)).ok() ? Status()
                                                                                  : internal_error("no parameters"),
            read_progress(noise.bent_document(progress), attempt),
            parse_refused(noise.bent_document(refused), "refused").ok() ? Status() : internal_error("no refusals"),
            check_training_result(noise.bent_document(result))};
        for (const Status& status : statuses) read += status.ok() ? 1 : 0;
    }
    EXPECT_GT(read, 10'000) << "seed " << kSeed;
    EXPECT_LT(read, 90'000) << "seed " << kSeed;
}

}  // namespace
}  // namespace atl::dispatch
