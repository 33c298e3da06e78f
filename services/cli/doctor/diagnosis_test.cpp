#include "services/cli/doctor/diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "shared/base/file.h"

namespace atl::cli {
namespace {

constexpr std::int64_t kNow_s = 1'800'000'000;

StackSeen seen_of(const std::string& name, const std::string& exposition) {
    StackSeen seen;
    seen.version = "1.0.0";
    seen.now_unix_s = kNow_s;
    seen.services.push_back({name, "", read_samples(exposition), {}});
    return seen;
}

std::vector<std::string> lines_of(const StackSeen& seen) {
    std::vector<std::string> lines;
    for (const Problem& one : diagnose(seen)) lines.push_back(one.about + ": " + one.what);
    return lines;
}

using Lines = std::vector<std::string>;

TEST(DiagnosisTest, AStackThatIsWellHasNoProblems) {
    EXPECT_EQ(lines_of(seen_of("store",
                               "# HELP atoll_ready …\natoll_ready{dependency=\"postgres\"} 1\n"
                               "atoll_build_info{version=\"1.0.0\"} 1\natoll_store_blobs_damaged 0\n"
                               "atoll_store_disk_free_bytes 9000\natoll_store_disk_reserve_bytes 1000\n"
                               "atoll_outbox_lag_seconds 3\nhttp 1 2 3\n{broken\n")),
              Lines());
}

TEST(DiagnosisTest, WhatIsCriticalComesFirst) {
    StackSeen seen = seen_of("dispatch",
                             "atoll_facility_silent_seconds{facility=\"alpha\"} 120\n"
                             "atoll_facility_silent_seconds{facility=\"beta\"} 0\n"
                             "atoll_due_task_age_seconds 301\n"
                             "atoll_build_info{version=\"0.9.0\"} 1\n");
    seen.services.push_back({"registry", "connection refused", {}, {}});
    seen.facilities = {{"alpha", "Permission denied"}};
    EXPECT_EQ(lines_of(seen), (Lines{"dispatch: a task has been waiting for a worker for 5 m 01 s",
                                     "registry: does not answer: connection refused",
                                     "alpha: has been unusable for 2 m 00 s: Permission denied",
                                     "dispatch: runs version 0.9.0; this program is 1.0.0"}));
}

TEST(DiagnosisTest, AFacilityThatCannotBeReachedIsOneProblemAndWhatTasksWaitForIsTold) {
    StackSeen seen = seen_of("dispatch",
                             "atoll_facility_silent_seconds{facility=\"alpha\"} 120\n"
                             "atoll_facility_login_budget_remaining{facility=\"alpha\"} 0\n"
                             "atoll_facility_login_budget_remaining{facility=\"beta\"} 0\n");
    seen.facilities = {{"alpha", "Connection reset"}};
    seen.task_waits = {{"gamma", "no space is left since noon"}};
    EXPECT_EQ(lines_of(seen), (Lines{"alpha: has been unusable for 2 m 00 s: Connection reset",
                                     "beta: its logins by ssh are used up for now",
                                     "gamma: a task there waits: no space is left since noon"}));
    EXPECT_EQ(diagnose(seen).back().remedy.find("by itself"), std::string::npos) << "a budget does not come back";
}

TEST(DiagnosisTest, ADiskIsJudgedByItsReserve) {
    EXPECT_EQ(lines_of(seen_of("store", "atoll_store_disk_free_bytes 1999\natoll_store_disk_reserve_bytes 1000\n")),
              Lines{"store: its disk has 2.0 KiB free; uploads are refused soon"});
    EXPECT_EQ(lines_of(seen_of("store", "atoll_store_disk_free_bytes 1999\n")), Lines()) << "no reserve is known";
}

TEST(DiagnosisTest, WhatEndsSoonIsToldBeforeItDoes) {
    const std::string day = std::to_string(kNow_s + 86400), month = std::to_string(kNow_s + 30 * 86400);
    StackSeen seen = seen_of("dispatch", "atoll_certificate_expiry_timestamp_seconds{use=\"gateway\"} " + day +
                                             "\natoll_certificate_expiry_timestamp_seconds{use=\"kafka\"} " + month +
                                             "\natoll_token_expiry_timestamp_seconds{token=\"aggregation\"} 1\n");
    seen.token_end_unix_s = kNow_s + 3600;
    EXPECT_EQ(lines_of(seen), (Lines{"aggregation: the token of dispatch ends in 0.0 s",
                                     "gateway: the certificate ends in 24 h 00 m", "your token: ends in 1 h 00 m"}));
}

TEST(DiagnosisTest, ClocksAndWhatIsLeftAtSitesAreLookedAt) {
    StackSeen seen =
        seen_of("dispatch",
                "atoll_tasks{facility=\"alpha\",kind=\"clean\",state=\"pending\"} 2\n"
                "atoll_tasks{facility=\"alpha\",kind=\"train\",state=\"running\"} 1\n"
                "atoll_tasks{facility=\"beta\",kind=\"clean\",state=\"pending\"} 1\n"
                "atoll_tasks{facility=\"gamma\",kind=\"clean\",state=\"pending\"} 1\n"
                "atoll_tasks_waiting{facility=\"alpha\",reason=\"unreachable\"} 3\n"
                "atoll_tasks_waiting{facility=\"gamma\",reason=\"queue\"} 1\n"
                "atoll_training_sample_timestamp_seconds{atoll_job=\"a \\\"b\\\"\",facility=\"alpha\"} 1800000300\n");
    seen.services.front().clock_off_s = -90;
    EXPECT_EQ(lines_of(seen), (Lines{"alpha: 2 jobs that ended have left files there that are not removed yet",
                                     "dispatch: its clock is 1 m 30 s behind ours",
                                     "alpha: its nodes' clock is 5 m 00 s ahead of ours"}));
}

TEST(DiagnosisTest, AComponentOfThisMachinesStackThatDoesNotRunIsToldOnce) {
    StackSeen seen = seen_of("store", "");
    seen.services.push_back({"registry", "connection refused", {}, {}});
    seen.components = {{"registry", "stopped"}, {"store", "ready"}, {"supervisor", "stopped"}};
    EXPECT_EQ(lines_of(seen), (Lines{"registry: does not answer: connection refused", "supervisor: is stopped"}));
}

TEST(DiagnosisTest, ItTellsOfWhateverAnAlertTellsOf) {
    const std::filesystem::path source = ATOLL_SOURCE;
    const std::string rules = read_file(source / "compose/observe/alerts.yaml").value();
    std::vector<std::string> alerts;
    const std::string mark = "- alert: ";
    for (std::size_t at = rules.find(mark); at != std::string::npos; at = rules.find(mark, at + 1))
        alerts.push_back(rules.substr(at + mark.size(), rules.find('\n', at) - at - mark.size()));
    EXPECT_EQ(diagnosed_alerts(), alerts) << "in the same order";
    for (const std::string& alert : diagnosed_alerts())
        EXPECT_TRUE(std::filesystem::exists(source / "docs/operate/alerts" / (alert + ".md"))) << alert;
}

}  // namespace
}  // namespace atl::cli
