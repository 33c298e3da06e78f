#include "services/dispatch/domain/update_check.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

TEST(UpdateCheckTest, LimitsFollowFromTheSettingsAndTheDatasetVersion) {
    const Json settings = {{"steps", 20}, {"batch_size", 16}, {"grad_accum", 2}};
    EXPECT_EQ(update_limits(settings, 2, 1000, 128)->samples, 20 * 16 * 2 * 2);
    EXPECT_EQ(update_limits(settings, 2, 1000, 128)->tokens, 20 * 16 * 2 * 2 * 128);
    EXPECT_EQ(update_limits({{"steps", 20}, {"global_batch_size", 12}, {"batch_size", 3}}, 2, 1000, 8)->samples, 240);
    EXPECT_EQ(update_limits({{"steps", 5}}, 3, 1000, 8)->samples, 15) << "one row a rank";
    EXPECT_EQ(update_limits({{"epochs", 2}, {"batch_size", 16}}, 1, 1001, 8)->samples, 2016)
        << "the last step is whole";
}

TEST(UpdateCheckTest, CountsBeyondWhatIsPossibleAreRefused) {
    const UpdateLimits limits{320, 40960};
    const auto summary = [](std::optional<std::int64_t> samples, std::optional<std::int64_t> tokens) {
        SummaryLine line;
        line.samples = samples;
        line.tokens = tokens;
        return line;
    };
    EXPECT_TRUE(check_counts(summary(320, 40960), limits).ok());
    EXPECT_TRUE(check_counts(summary(0, 0), limits).ok());
    for (const SummaryLine& wrong :
         {summary(321, 1), summary(1, 40961), summary(std::nullopt, 1), summary(1, std::nullopt)})
        EXPECT_TRUE(is_refusal(check_counts(wrong, limits).error())) << to_json(wrong);
}

TEST(UpdateCheckTest, TheStoreMustKnowAnUpdateOfTheBase) {
    const Json good = {{"kind", "update"}, {"parents", {"b"}}};
    EXPECT_TRUE(check_version(good, "b").ok());
    EXPECT_TRUE(check_version({{"kind", "global"}, {"parents", {"b"}}}, "b").ok()) << "once the only one of its round";
    EXPECT_TRUE(check_version({{"digest", "b"}, {"kind", "global"}, {"parents", {"a", "u"}}}, "b").ok())
        << "a training that changed nothing";
    for (const Json& wrong : {Json{{"digest", "u"}, {"kind", "global"}, {"parents", {"a", "u"}}},
                              Json{{"kind", "base"}, {"parents", {"b"}}}, Json{{"kind", "update"}, {"parents", {"a"}}},
                              Json{{"kind", "update"}, {"parents", {"b", "a"}}},
                              Json{{"kind", "update"}, {"parents", Json::array()}}, Json{{"kind", "update"}}})
        EXPECT_TRUE(is_refusal(check_version(wrong, "b").error())) << wrong;
    for (const Json& unreadable : {Json("update"), Json{{"digest", 7}, {"kind", "update"}, {"parents", {"b"}}},
                                   Json{{"kind", "update"}, {"parents", "b"}}})
        EXPECT_EQ(check_version(unreadable, "b").error().code, ErrorCode::kInternal) << unreadable;
}

}  // namespace
}  // namespace atl::dispatch
