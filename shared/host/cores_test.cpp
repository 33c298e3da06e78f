#include "shared/host/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace atl::host {
namespace {

TEST(CoresTest, TheSetHasAMarkForEachProcessorOfTheThread) {
    const std::string all = core_set();
    ASSERT_TRUE(all.ends_with('1')) << all;
    const int last = static_cast<int>(all.size()) - 1;
    cpu_set_t before, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const std::string bound = core_set();
    const int usable = usable_cores();
    EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(bound, std::string(all.size() - 1, '0') + '1');
    EXPECT_EQ(usable, 1);
    EXPECT_EQ(count_cores(all), CPU_COUNT(&before));
}

TEST(CoresTest, AProcessThatIsNotThereHasNoSet) {
    EXPECT_EQ(core_set(1 << 30), "");
}

}  // namespace
}  // namespace atl::host
