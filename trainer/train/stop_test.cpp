#include "trainer/train/stop.h"

#include <gtest/gtest.h>

#include <csignal>

namespace atl::train {
namespace {

TEST(StopTest, TheTimeThatIsNeededMustFitIntoWhatIsLeft) {
    const StopRequest stop;
    EXPECT_FALSE(stop.wanted(10000, 1));
    EXPECT_TRUE(stop.wanted(10000, 10001));
    EXPECT_FALSE(stop.wanted(0, 10001)) << "no limit";
}

TEST(StopTest, ASignalIsRemembered) {
    const StopRequest stop;
    EXPECT_FALSE(stop.signalled());
    raise(SIGTERM);
    EXPECT_TRUE(stop.signalled());
    EXPECT_TRUE(stop.wanted(0, 0));
}

}  // namespace
}  // namespace atl::train
