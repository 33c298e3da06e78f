#include "services/cli/job_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::cli {
namespace {

const nlohmann::json kJobs = {{{"id", "0199b"}, {"name", "italian"}, {"state", "running"}},
                              {{"id", "0199a"}, {"name", "czech"}, {"state", "failed"}},
                              {{"id", "01998"}, {"name", "czech"}, {"state", "completed"}}};

TEST(JobNamesTest, AJobIsFoundByItsIdItsNameOrAsTheNewest) {
    EXPECT_EQ(find_job(kJobs, "01998", "ada").value(), "01998");
    EXPECT_EQ(find_job(kJobs, "italian", "ada").value(), "0199b");
    EXPECT_EQ(find_job(kJobs, "newest", "ada").value(), "0199b");
}

TEST(JobNamesTest, EightCharactersOfAnIdNameItsJob) {
    const nlohmann::json jobs = {{{"id", "01jd3v7e8m2k"}, {"name", "a"}, {"state", "running"}},
                                 {{"id", "01jd3v7e9q4t"}, {"name", "b"}, {"state", "failed"}}};
    EXPECT_EQ(find_job(jobs, "01jd3v7e9", "ada").value(), "01jd3v7e9q4t");
    const Error too_short = find_job(jobs, "01jd3v7", "ada").error();
    EXPECT_EQ(too_short.code, ErrorCode::kNotFound);
    EXPECT_NE(too_short.message.find("8 or more"), std::string::npos) << too_short.message;
    const Error both = find_job(jobs, "01jd3v7e", "ada").error();
    EXPECT_EQ(both.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(both.message.find("01jd3v7e8m2k\n  01jd3v7e9q4t"), std::string::npos) << both.message;
}

TEST(JobNamesTest, ANameOfSeveralJobsIsRefusedWithTheirIds) {
    const auto found = find_job(kJobs, "czech", "ada");
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
    for (const char* shown : {"czech", "0199a (failed)", "01998 (completed)"})
        EXPECT_NE(found.error().message.find(shown), std::string::npos) << found.error().message;
}

TEST(JobNamesTest, OnesOwnJobsComeBeforeThoseOfTheSameName) {
    nlohmann::json jobs = {{{"id", "0199b"}, {"name", "k-honest"}, {"state", "running"}, {"created_by", "bob"}},
                           {{"id", "0199a"}, {"name", "k-honest"}, {"state", "running"}, {"created_by", "admin"}}};
    EXPECT_EQ(find_job(jobs, "k-honest", "admin").value(), "0199a");
    EXPECT_EQ(find_job(jobs, "k-honest", "bob").value(), "0199b");
    EXPECT_EQ(find_job(jobs, "k-honest", "ada").error().code, ErrorCode::kInvalidArgument);
    jobs.push_back({{"id", "01999"}, {"name", "k-honest"}, {"state", "failed"}, {"created_by", "admin"}});
    const Error two = find_job(jobs, "k-honest", "admin").error();
    EXPECT_EQ(two.message.find("0199b"), std::string::npos) << two.message;
}

TEST(JobNamesTest, ANameTakesThePlaceOfNoId) {
    const nlohmann::json jobs = {
        {{"id", "01jd3v7e8m2k"}, {"name", "a"}, {"state", "running"}, {"created_by", "admin"}},
        {{"id", "01jd3v7e9q4t"}, {"name", "01jd3v7e8m"}, {"state", "running"}, {"created_by", "bob"}},
        {{"id", "01jd3v7f0000"}, {"name", "01jd3v7f00"}, {"state", "running"}, {"created_by", "bob"}}};
    const auto both = find_job(jobs, "01jd3v7e8m", "admin");
    ASSERT_FALSE(both.ok()) << *both;
    EXPECT_NE(both.error().message.find("01jd3v7e9q4t\n  01jd3v7e8m2k"), std::string::npos) << both.error().message;
    EXPECT_EQ(find_job(jobs, "01jd3v7e8m2k", "admin").value(), "01jd3v7e8m2k");
    EXPECT_EQ(find_job(jobs, "01jd3v7f00", "admin").value(), "01jd3v7f0000") << "its own";
}

TEST(JobNamesTest, TheNewestIsOnesOwn) {
    const nlohmann::json jobs = {{{"id", "0199b"}, {"name", "b"}, {"state", "running"}, {"created_by", "bob"}},
                                 {{"id", "0199a"}, {"name", "a"}, {"state", "running"}, {"created_by", "admin"}}};
    EXPECT_EQ(find_job(jobs, "newest", "admin").value(), "0199a");
    EXPECT_EQ(find_job(jobs, "newest", "ada").value(), "0199b") << "who has none sees all";
}

TEST(JobNamesTest, ANameThatNoJobHasIsNotFoundAndTheNearestIsNamed) {
    const Error mistyped = find_job(kJobs, "itallian", "ada").error();
    EXPECT_EQ(mistyped.code, ErrorCode::kNotFound);
    EXPECT_TRUE(mistyped.message.ends_with(" italian?")) << mistyped.message;
    EXPECT_FALSE(find_job(kJobs, "x", "ada").error().message.ends_with("?"));
    EXPECT_EQ(find_job(nlohmann::json::array(), "newest", "ada").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace atl::cli
