#include "shared/host/control_group.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "shared/base/file.h"

namespace atl::host {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// A tree as the kernel shows it under /sys/fs/cgroup.
class ControlGroupTest : public testing::Test {
  protected:
    void put(const std::string& group, const std::string& file, const std::string& text) {
        std::filesystem::create_directories(root() / group);
        ASSERT_TRUE(write_file_atomic(root() / group / file, text + "\n").ok());
    }
    void version2(const std::string& group, const std::string& limit, int used, int active = 0, int inactive = 0) {
        put(group, "memory.max", limit);
        put(group, "memory.current", std::to_string(used));
        put(group, "memory.stat",
            "anon 1\nfile 99\nactive_file " + std::to_string(active) + "\ninactive_file " + std::to_string(inactive));
    }
    void version1(const std::string& group, const std::string& limit, int used, int cache = 0) {
        put("memory/" + group, "memory.limit_in_bytes", limit);
        put("memory/" + group, "memory.usage_in_bytes", std::to_string(used));
        put("memory/" + group, "memory.stat", "inactive_file 77\ntotal_inactive_file " + std::to_string(cache));
    }
    double cores(const std::string& groups) { return control_group_cores(root(), groups); }
    std::int64_t room(const std::string& groups) { return control_group_room(root(), groups); }
    const std::filesystem::path& root() const { return directory_.path(); }

  private:
    TemporaryDirectory directory_{"control-group"};
};

TEST_F(ControlGroupTest, WithoutALimitThereIsNone) {
    EXPECT_EQ(room(""), kNone);
    EXPECT_EQ(room("0::/user.slice\n"), kNone);
    version2("user.slice", "max", 100);
    EXPECT_EQ(room("0::/user.slice\n"), kNone);
}

TEST_F(ControlGroupTest, TheLeastOfAllGroupsFromTheProcessUpToTheRootBinds) {
    version2("slurm/job_7", "1000", 300);
    version2("slurm/job_7/step_0", "max", 200);
    version2("slurm/job_7/step_0/task_0", "max", 100);
    version2("slurm/job_8", "10", 10);
    EXPECT_EQ(room("0::/slurm/job_7/step_0/task_0\n"), 700);
    version2("slurm/job_7/step_0/task_0", "600", 100);
    EXPECT_EQ(room("0::/slurm/job_7/step_0/task_0\n"), 500);
}

TEST_F(ControlGroupTest, PageCacheMakesRoom) {
    version2("job", "1000", 900, /*active=*/500, /*inactive=*/250);
    EXPECT_EQ(room("0::/job\n"), 850);
    version2("job", "1000", 1200, /*active=*/100);
    EXPECT_EQ(room("0::/job\n"), 0) << "over its limit";
}

TEST_F(ControlGroupTest, Version1IsReadFromItsMemoryController) {
    version1("", "9223372036854771712", 5000);
    version1("slurm/uid_1/job_7", "1000", 900, /*cache=*/400);
    version1("slurm/uid_1/job_7/step_0", "9223372036854771712", 900);
    EXPECT_EQ(room("9:cpu,cpuacct:/elsewhere\n4:memory:/slurm/uid_1/job_7/step_0\n1:name=systemd:/x\n0::/y\n"), 500);
    EXPECT_EQ(room("4:hugetlb,memory:/slurm/uid_1/job_7\n"), 500) << "mounted with another controller";
    EXPECT_EQ(room("4:memoryx:/slurm/uid_1/job_7\n"), kNone);
}

TEST_F(ControlGroupTest, InAContainerTheRootIsItsGroup) {
    version2("", "1000", 100);
    EXPECT_EQ(room("0::/docker/0123\n"), 900) << "a path of the host";
    EXPECT_EQ(room("0::/../sibling\n"), 900);
    version1("", "700", 100);
    EXPECT_EQ(room("4:memory:/docker/0123\n"), 600);
}

TEST_F(ControlGroupTest, TheLeastQuotaOfAllGroupsSaysHowManyCores) {
    constexpr double kAll = std::numeric_limits<double>::infinity();
    EXPECT_EQ(cores("0::/job/task\n"), kAll);
    put("job", "cpu.max", "max 100000");
    EXPECT_EQ(cores("0::/job/task\n"), kAll);
    put("job", "cpu.max", "250000 100000");
    put("job/task", "cpu.max", "400000 50000");
    put("other", "cpu.max", "1000 100000");
    EXPECT_EQ(cores("0::/job/task\n"), 2.5);
    put("", "cpu.max", "150000 100000");
    EXPECT_EQ(cores("0::/docker/0123\n"), 1.5) << "in a container the root is its group";
}

TEST_F(ControlGroupTest, QuotasOfVersion1AreThoseOfItsCpuController) {
    put("cpu", "cpu.cfs_quota_us", "-1");
    put("cpu", "cpu.cfs_period_us", "100000");
    put("cpu/job", "cpu.cfs_quota_us", "300000");
    put("cpu/job", "cpu.cfs_period_us", "100000");
    EXPECT_EQ(cores("3:cpuset:/job\n9:cpu,cpuacct:/job/task\n0::/\n"), 3);
    EXPECT_EQ(cores("3:cpuset:/job\n9:cpu,cpuacct:/\n"), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace atl::host
