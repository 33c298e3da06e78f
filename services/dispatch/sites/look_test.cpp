#include <gtest/gtest.h>

#include "services/dispatch/sites/script_site.h"
#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

TEST(LookTest, OneAttemptThatCannotBeEnteredStopsTheLookAtNoOther) {
    const TemporaryDirectory directory;
    Facility facility;
    facility.batch.kind = "local";
    facility.work_dir = directory.path() / "work";
    ScriptSite site(facility, make_local_transport(), "");
    const std::string odd = site.task_directory("odd", 1);
    const std::string good = site.task_directory("good", 1);
    std::filesystem::create_directories(good);
    std::filesystem::create_directories(std::filesystem::path(odd).parent_path());
    ASSERT_TRUE(write_file_atomic(odd, "a file where a directory was").ok());
    ASSERT_TRUE(write_file_atomic(good + "/stdout.jsonl", "{}\n").ok());
    ASSERT_TRUE(write_file_atomic(good + "/end.json", "{\"exit_code\":0}").ok());
    const auto looks = site.look({{good, 0}, {odd, 7}, {good, 3}});
    ASSERT_TRUE(looks.ok()) << describe(looks.error());
    EXPECT_EQ(looks->at(1).unknown, odd + " cannot be entered");
    EXPECT_EQ(looks->at(1).log_offset, 7);
    for (const std::size_t other : {0U, 2U}) {
        EXPECT_EQ(looks->at(other).exit_code, 0);
        EXPECT_EQ(looks->at(other).log_offset, 3);
        EXPECT_EQ(looks->at(other).unknown, "");
    }
}

}  // namespace
}  // namespace atl::dispatch
