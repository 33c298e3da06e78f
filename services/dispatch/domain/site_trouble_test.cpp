#include "services/dispatch/domain/site_trouble.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

TEST(SiteTroubleTest, WhatAProgramDoesNotFindInTheWorkDirectoryIsNamed) {
    const auto path = [](const std::string& said) { return find_lost_file(said, "/scratch/atoll").path; };
    EXPECT_EQ(path("atoll-trainer train: --data: there is no '/scratch/atoll/datasets/it/1/train'"),
              "/scratch/atoll/datasets/it/1/train");
    EXPECT_EQ(path("a note\natoll-trainer eval: cannot open /scratch/atoll/models/ab/config.json: No such file or "
                   "directory\n"),
              "/scratch/atoll/models/ab/config.json");
    for (const char* other : {"", "atoll-trainer train: --data: there is no '/data/it'",
                              "atoll-trainer train: --data: there is no '/scratch/atoll2/it'",
                              "/scratch/atoll/datasets/it/1/train/data.json: is of another version"})
        EXPECT_EQ(path(other), "") << other;
    EXPECT_FALSE(find_lost_file("there is no '/scratch/atoll/a'", "/scratch/atoll").is_broken);
}

TEST(SiteTroubleTest, WhatTheTrainerCannotWriteIsToldFromWhatOthersCannot) {
    EXPECT_TRUE(is_trainer_read_only("a note\natoll-trainer train: cannot write out: Read-only file system\n"));
    EXPECT_FALSE(is_trainer_read_only("mkdir: cannot create '/root/.cache': Read-only file system\natoll-trainer: no"));
}

TEST(SiteTroubleTest, AFileSystemThatIsAwaySaysSoInManyWords) {
    for (const char* reason : {"Stale file handle", "Transport endpoint is not connected", "Input/output error",
                               "Cannot send after transport endpoint shutdown", "Host is down", "Remote I/O error"}) {
        const std::string said =
            std::string("atoll-trainer train: --model: '/scratch/atoll/models/ab' cannot be read: ") + reason;
        EXPECT_TRUE(find_lost_file(said, "/scratch/atoll").is_broken) << reason;
        EXPECT_FALSE(find_lost_file(std::string("mca_btl_tcp: ") + reason, "/scratch/atoll").is_broken) << reason;
    }
}

}  // namespace
}  // namespace atl::dispatch
