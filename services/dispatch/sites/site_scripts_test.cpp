#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>

#include "shared/base/file.h"
#include "shared/site/exit_status.h"

namespace atl::dispatch {
namespace {

// Statuses that a script passes from one line to another, or that a job, not a script, ends with.
bool is_listed(int status) {
    return status <= 1 || std::find(std::begin(site::kExitStatuses), std::end(site::kExitStatuses), status) !=
                              std::end(site::kExitStatuses);
}

TEST(SiteScriptsTest, EveryExitStatusIsOneThatTheCoordinatorKnows) {
    const std::regex exits(R"((?:^|[\s;{(])(?:exit|return|status=)\s*([0-9]+)\b)");
    int found = 0;
    for (const char* folder : {"scripts", "batch/scripts"})
        for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(ATOLL_SITES) / folder)) {
            const std::string text = read_file(file.path()).value();
            for (std::sregex_iterator at(text.begin(), text.end(), exits), end; at != end; ++at, ++found)
                EXPECT_TRUE(is_listed(std::stoi((*at)[1]))) << file.path() << ": " << at->str();
        }
    EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace atl::dispatch
