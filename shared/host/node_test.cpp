#include "shared/host/node.h"

#include <gtest/gtest.h>

#include <vector>

namespace atl::host {
namespace {

TEST(NodeTest, ReadsTheFieldsOfProc) {
    const std::string_view text = "Name:\tx\nVmRSS:\t    1200 kB\nXVmHWM: 3 kB\nVmHWM:\t  5 kB\n";
    EXPECT_EQ(kilobyte_field(text, "VmRSS"), 1200 * 1024);
    EXPECT_EQ(kilobyte_field(text, "VmHWM"), 5 * 1024);
    EXPECT_EQ(kilobyte_field(text, "VmSwap"), 0);
}

TEST(NodeTest, ThePeakRemembersMemoryThatIsGiven) {
    const std::int64_t before = resident_peak_bytes();
    {
        const std::vector<char> block(64 << 20, 1);
        EXPECT_GE(resident_bytes(), static_cast<std::int64_t>(block.size()));
    }
    EXPECT_GE(resident_peak_bytes(), before + (48 << 20));
    EXPECT_GE(resident_peak_bytes(), resident_bytes());
}

TEST(NodeTest, ThisMachineHasMemoryAndAProcessor) {
    EXPECT_GT(available_bytes(), 1 << 20);
    EXPECT_FALSE(cpu_model().empty());
}

}  // namespace
}  // namespace atl::host
