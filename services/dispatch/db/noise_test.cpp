#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/testing/dispatch_fixture.h"
#include "services/dispatch/testing/site_noise.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

constexpr std::uint64_t kNoiseSeed = 20'261'123;

// What sites say and rows hold, against a real Postgres and without any worker.
class NoiseTest : public DispatchSchemaTest {
  protected:
    void SetUp() override {
        DispatchSchemaTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        connection_.emplace(connect());
        const Json facility = {{"name", "leonardo"},
                               {"transport", {{"kind", "local"}}},
                               {"batch", {{"kind", "local"}}},
                               {"work_dir", work_dir("leonardo").string()}};
        JobView job;
        job.id = "j1";
        job.base = digest::sha256("base");
        job.spec = parse_job_spec({{"name", "fortunes"},
                                   {"model", {{"name", "tiny"}, {"version", "base"}}},
                                   {"participants", {{{"facility", "leonardo"}, {"dataset", "it"}}}},
                                   {"rounds", 2},
                                   {"training", {{"steps", 3}, {"lr", 0.1}}}})
                       .value();
        auto transaction = begin();
        ASSERT_TRUE(insert_facility(transaction, parse_facility(facility).value()).ok());
        ASSERT_TRUE(insert_job(transaction, topics_, job, "tester").ok());
        ASSERT_TRUE(transaction.commit().ok());
        for (Task& task : load_tasks(*connection_, "t.job_id = $1", {"j1"}).value())
            (task.kind() == TaskKind::kTrain ? train_ : evaluate_) = std::move(task);
    }
    pg::Transaction begin() { return pg::Transaction::begin(*connection_).value(); }
    // As a worker keeps it; the job is not asked what follows.
    Status keep(pg::Transaction& transaction, TaskChange change) {
        change.task.id = change.task.kind() == TaskKind::kTrain ? train_.id : evaluate_.id;
        std::int64_t& fence = fences_[change.task.id];
        ATOLL_RETURN_IF_ERROR(save_task(transaction, change, fence));
        ++fence;
        return record_events(transaction, topics_, "j1", change.events);
    }

    const Topics topics_{"test."};
    std::optional<pg::Connection> connection_;
    Task train_;
    Task evaluate_;
    std::map<std::string, std::int64_t> fences_;
};

// Of how many looks one is kept by the statements that keep it, as all take minutes: ATOLL_NOISE_KEPT=1 keeps all.
int kept_one_of() {
    const char* chosen = std::getenv("ATOLL_NOISE_KEPT");
    return chosen == nullptr ? 20 : std::max(1, std::atoi(chosen));
}

TEST_F(NoiseTest, WhateverASiteSaysCanBeKept) {
    constexpr int kBatch = 500;
    const int one_of = kept_one_of();
    Noise noise(kNoiseSeed);
    Task task = noisy_task(noise);
    for (int i = 0; i < 100'000;) {
        auto transaction = begin();
        Json all = Json::array();
        for (const int end = i + kBatch; i < end; ++i) {
            TaskChange change = noisy_change(noise, task);
            all.push_back(kept_of(change));
            if (i % one_of == 0) {
                const Status kept = keep(transaction, change);
                ASSERT_TRUE(kept.ok()) << "seed " << kNoiseSeed << ", look " << i << ": " << describe(kept.error());
            }
            task = goes_on(change.task) && !noise.one_in(20) ? std::move(change.task) : noisy_task(noise);
        }
        const auto taken = transaction.query("SELECT jsonb_array_length($1::jsonb) AS n", {all.dump()});
        ASSERT_TRUE(taken.ok()) << "seed " << kNoiseSeed << ", before look " << i << ": " << describe(taken.error());
        ASSERT_EQ(taken->integer(0, "n"), kBatch);
        ASSERT_TRUE(transaction.commit().ok());
    }
    EXPECT_GT(connection_->query("SELECT count(*) AS n FROM job_events")->integer(0, "n"), 1000);
}

// A document of the job's rows that is none of this release's, or none at all.
TEST_F(NoiseTest, WhateverARowHoldsTheJobGoesOnOrFailsWithAReason) {
    {
        auto transaction = begin();
        TaskChange done = apply(begin_attempt(train_).task,
                                Collected{{{"version", digest::sha256("u")}, {"samples", 1}, {"tokens", 2}}}, {}, 0);
        ASSERT_TRUE(keep(transaction, done).ok());
        ASSERT_TRUE(keep(transaction, begin_attempt(evaluate_)).ok());
        ASSERT_TRUE(transaction.commit().ok());
    }
    const std::pair<const char*, const char*> places[] = {
        {"jobs", "spec"},         {"jobs", "records"},  {"rounds", "accepted"},
        {"rounds", "refused"},    {"tasks", "params"},  {"tasks", "result"},
        {"attempts", "progress"}, {"attempts", "step"}, {"rounds", "version_digest"}};
    std::map<std::string, int> ends;
    Noise noise(kNoiseSeed);
    for (int i = 0; i < 3'000; ++i) {
        const auto& [table, column] = places[noise.below(std::size(places))];
        const std::string where = std::string(table) + "." + column;
        auto transaction = begin();  // is taken back
        const auto rows = transaction.query("SELECT ctid::text AS id, to_jsonb(" + std::string(column) +
                                            ") AS value FROM " + table + " ORDER BY ctid LIMIT 1 OFFSET (SELECT " +
                                            std::to_string(noise.below(100)) + " % count(*) FROM " + table + ")");
        const Json before = rows->json(0, "value");
        const bool is_word = before.is_string();
        const Json bent = is_word ? Json("hovering") : noise.bent_document(before.is_null() ? Json::object() : before);
        const auto changed = transaction.query(
            "UPDATE " + std::string(table) + " SET " + column + " = $2 WHERE ctid = $1::tid",
            {rows->text(0, "id"), is_word ? pg::Param(bent.get<std::string>())
                                          : pg::Param(bent.dump(-1, ' ', false, Json::error_handler_t::replace))});
        if (!changed.ok()) continue;  // what Postgres itself refuses
        SCOPED_TRACE("seed " + std::to_string(kNoiseSeed) + ", " + where + " = " +
                     bent.dump(-1, ' ', true, Json::error_handler_t::replace));
        ASSERT_NO_THROW((void)lock_job(transaction, "j1"));
        const Status advanced = advance_job(transaction, topics_, "j1");
        ASSERT_TRUE(advanced.ok()) << describe(advanced.error());
        const auto job = transaction.query("SELECT state, error FROM jobs WHERE id = 'j1'");
        ASSERT_EQ(job->text(0, "state") == "failed", job->text(0, "error") != "");
        ++ends[job->text(0, "state")];
        for (const Task& read : load_tasks(transaction.connection(), "t.job_id = $1", {"j1"}).value()) {
            if (read.damage.empty() || !read.attempt || read.state != TaskState::kRunning) continue;
            ASSERT_TRUE(keep(transaction, apply(read, Rejected{read.damage, true}, {}, 0)).ok());
        }
        fences_[evaluate_.id] = 1;  // as before
    }
    EXPECT_GT(ends["failed"], 300) << "seed " << kNoiseSeed;
    EXPECT_GT(ends["running"], 300) << "seed " << kNoiseSeed;
}

}  // namespace
}  // namespace atl::dispatch
