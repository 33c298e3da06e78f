#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/site/attempt_files.h"
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

// Of an attempt's files, those that go by an ending. job_script.cpp has shell text too.
TEST(SiteScriptsTest, AnAttemptsFilesAreThoseThatTheCoordinatorReads) {
    const std::regex names(R"(\b[a-z_]+\.(?:jsonl|log|json|state)\b)");
    const std::set<std::string> others = {"runner.log", "meta.json",
                                          "run.json"};  // of the login node, or of the coordinator
    std::vector<std::filesystem::path> files = {std::filesystem::path(ATOLL_SITES) / "job_script.cpp"};
    for (const char* folder : {"scripts", "batch/scripts"})
        for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(ATOLL_SITES) / folder))
            files.push_back(file.path());
    std::set<std::string> found;
    for (const auto& file : files) {
        const std::string text = read_file(file).value();
        for (std::sregex_iterator at(text.begin(), text.end(), names), end; at != end; ++at)
            if (!others.contains(at->str())) found.insert(at->str());
    }
    std::set<std::string> listed(std::begin(site::kAttemptFiles), std::end(site::kAttemptFiles));
    listed.erase(site::kBatchLog);  // which sbatch writes
    EXPECT_EQ(found, listed);
}

// A name that can be told can be taken before us, by a link. Where files have such names nobody else may enter.
TEST(SiteScriptsTest, AClaimWhoseFilesHaveFixedNamesIsOursAloneAndNoLink) {
    const TemporaryDirectory directory;
    const std::string claim = directory.path() / "claim";
    const std::string moving = read_file(std::filesystem::path(ATOLL_SITES) / "scripts/moving.sh").value();
    const auto run = [&](const std::string& more) {
        return run_command({"sh", "-c", "umask 000\n" + moving + more, "sh", claim}).value();
    };
    const std::string held = "claim \"$1\" me && stat -c %a \"$1\" && { still; :; }";
    const CommandResult taken = run(held);
    EXPECT_EQ(taken.out, "700\n") << taken.err;
    EXPECT_EQ(taken.exit_code, 0);
    EXPECT_EQ(run(held).out, "") << "it is held";
    const auto mine = directory.path() / "somebody's";
    std::filesystem::create_directories(mine);
    std::filesystem::remove_all(claim);
    std::filesystem::create_directory_symlink(mine, claim);
    EXPECT_NE(run(held).exit_code, 0);
    EXPECT_TRUE(std::filesystem::is_empty(mine)) << "what a link leads to is not ours";
}

TEST(SiteScriptsTest, AReadOnlyWorkDirectoryIsCalledThat) {
    const TemporaryDirectory directory;
    const std::string said = "chmod: changing permissions of 'models': Read-only file system";
    std::filesystem::create_directories(directory.path() / "bin");
    std::filesystem::create_directories(directory.path() / "work/models");
    ASSERT_TRUE(
        write_file_atomic(directory.path() / "bin/chmod", "#!/bin/sh\necho \"" + said + "\" >&2\nexit 1\n", 0755).ok());
    const std::string script = read_file(std::filesystem::path(ATOLL_SITES) / "scripts/prepare_stage.sh").value();
    const CommandResult result =
        run_command({"sh", "-c", "PATH=" + (directory.path() / "bin").string() + ":$PATH\n" + script, "sh", "sh", "sh",
                     "store", directory.path() / "work", "pin", "for"})
            .value();
    EXPECT_EQ(result.exit_code, 75);
    EXPECT_EQ(result.err, said + "\n");
}

// Two who wait for the same work both see that it has ended, and one of them takes the claim away.
TEST(SiteScriptsTest, AnEndedClaimThatAnotherTakesMeanwhileIsBegunAnew) {
    const TemporaryDirectory directory;
    const std::string claim = directory.path() / "claim";
    const std::string moving = read_file(std::filesystem::path(ATOLL_SITES) / "scripts/moving.sh").value();
    const std::string waiting = R"(
mkdir "$1" && echo 1 >"$1/status" && echo another >"$1/for"
mv() { rm -rf "$claim"; command mv "$@"; }
token= mover='mkdir "$1"'
follow "$1" me "$1.made" "$1.made" && echo done)";
    const CommandResult result = run_command({"sh", "-c", moving + waiting, "sh", claim}).value();
    EXPECT_EQ(result.out, "done\n") << result.err;
    EXPECT_EQ(result.err, "");
}

TEST(SiteScriptsTest, OnlyInAClaimAFileOnItsWayHasAFixedName) {
    const std::regex fixed(R"([\w/$"{}]*\.(?:new|tmp|temp|old|bak|swp)\b)");
    std::set<std::string> names;
    for (const char* folder : {"scripts", "batch/scripts"})
        for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(ATOLL_SITES) / folder)) {
            const std::string text = read_file(file.path()).value();
            for (std::sregex_iterator at(text.begin(), text.end(), fixed), end; at != end; ++at)
                names.insert(file.path().filename().string() + ": " + at->str());
        }
    EXPECT_EQ(names, std::set<std::string>{"moving.sh: \"$1/status.new"}) << "end() writes into a claim";
}

}  // namespace
}  // namespace atl::dispatch
