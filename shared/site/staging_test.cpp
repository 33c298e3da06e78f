#include "shared/site/staging.h"

#include <gtest/gtest.h>

#include "shared/site/exit_status.h"

namespace atl::site {
namespace {

TEST(StagingTest, OnlyTheStoresOwnAnswerIsAboutTheVersion) {
    const struct {
        Error error;
        StagingEnd end;
        int exit_status;
    } cases[] = {{unavailable("away"), StagingEnd::kTryLater, kExitTryLater},
                 {{ErrorCode::kInsufficientStorage, "full", "/work"}, StagingEnd::kTryLater, kExitTryLater},
                 {with_cause(not_found("no version"), Cause::kService), StagingEnd::kAbsent, kExitAbsent},
                 {conflict("other bytes"), StagingEnd::kAbsent, kExitAbsent},
                 {invalid_argument("digest", "is none"), StagingEnd::kBadInput, kExitUsage},
                 {with_cause(not_found("nothing here", "digest"), Cause::kElsewhere), StagingEnd::kUncertain, 1},
                 {with_cause(invalid_argument("digest", "no"), Cause::kElsewhere), StagingEnd::kUncertain, 1},
                 {with_cause(conflict("no"), Cause::kElsewhere), StagingEnd::kUncertain, 1},
                 {unreadable("not valid JSON"), StagingEnd::kUncertain, 1},
                 {permission_denied("not this token"), StagingEnd::kUncertain, 1},
                 {internal_error("broken"), StagingEnd::kUncertain, 1}};
    for (const auto& one : cases) {
        EXPECT_EQ(judge_staging(one.error), one.end) << one.error.message;
        EXPECT_EQ(staging_exit_status(one.error), one.exit_status) << one.error.message;
    }
}

}  // namespace
}  // namespace atl::site
