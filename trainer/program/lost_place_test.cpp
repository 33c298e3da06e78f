// A training whose directories are removed or renamed, or may not be written into any more, after its first step: what
// was trained is kept somewhere, and the last line says where.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "shared/base/testing/sanitizers.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

class LostPlaceTest : public ProgramTest {
  protected:
    LostPlaceTest() {
        for (const char* name : {"run", "work", "tmp"}) fs::create_directory(path(name));
    }
    void SetUp() override {
        if (ATOLL_SANITIZED) GTEST_SKIP() << kHoldSkipped;
    }

    // A training of 3 steps into run/out.
    std::vector<std::string> training(const std::vector<std::string>& flags, int ranks) const {
        std::vector<std::string> arguments = {
            "train",   "--model", path("model"),         "--data", path("data.safetensors"), "--threads", "1",
            "--steps", "3",       "--global-batch-size", "2",      "--deterministic"};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        if (std::ranges::find(flags, "--out") == flags.end())
            arguments.insert(arguments.end(), {"--out", path("run/out")});
        return command(arguments, ranks);
    }
    // Runs it from the directory work, and does `change` after its first step: words of a shell, in the directory
    // above. `starter` begins the shell.
    CommandResult train_while(const std::string& change, const std::vector<std::string>& flags, int ranks,
                              std::vector<std::string> starter = {}) const {
        starter.insert(starter.end(), {"env", "LOG=" + path("log"), "TOP=" + path(""), "sh", "-c",
                                       std::string(kRunWhile) + "cd \"$TOP/work\"; change_it() ( cd \"$TOP\"; " +
                                           change + " )\nrun_while change_it \"$@\"",
                                       "sh"});
        return run_under(starter, training(flags, ranks));
    }
    // The result is that of a run that nothing happened to.
    void expect_whole(const std::string& out) const {
        if (!fs::exists(path("whole"))) {
            EXPECT_EQ(run_under({}, training({"--out", path("whole")}, 1)).exit_code, 0);
        }
        EXPECT_EQ(weights(out) == weights("whole"), true) << out;
    }
    // Goes on as the message says, from a state after all steps but so many.
    void expect_goes_on(const CommandResult& lost, std::size_t steps_left, int ranks) const {
        EXPECT_EQ(lost.exit_code, 1) << lost.err;
        std::smatch way_on;
        ASSERT_TRUE(std::regex_search(lost.err, way_on, std::regex("the same command with --resume --out (\\S+) ")))
            << lost.err;
        const std::string out = way_on[1].str();
        EXPECT_TRUE(fs::exists(out + ".state/state.safetensors")) << lost.err;
        const auto rest = run_under({}, training({"--resume", "--out", out}, ranks));
        EXPECT_EQ(rest.exit_code, 0) << rest.err;
        EXPECT_EQ(member(rest.out, "loss").size(), steps_left) << rest.out << rest.err;
        EXPECT_TRUE(out.starts_with(path(""))) << out;
        expect_whole(out.substr(path("").size()));
    }
};

TEST_F(LostPlaceTest, ADirectoryOfStatesThatWasRemovedOrRenamedIsMadeAgain) {
    for (const char* const change : {"rm -r run/out.state", "mv run/out.state run/moved"}) {
        for (const int ranks : {1, 2}) {
            for (const char* const async : {"off", "on"}) {
                const auto result = train_while(change, {"--save-every", "2", "--save-async", async}, ranks);
                EXPECT_EQ(result.exit_code, 0) << result.err;
                EXPECT_NE(result.err.find(path("run/out.state") + " was removed or renamed"), std::string::npos)
                    << result.err;
                expect_whole("run/out");
                fs::remove_all(path("run"));
                fs::create_directory(path("run"));
            }
        }
    }
}

// The model has no place then, and its training is kept where states are.
TEST_F(LostPlaceTest, WithoutOutTheTrainingIsKeptAsAState) {
    for (const char* const change :
         {"rm -r run/out", "mv run/out run/moved", "mv run/out run/moved; mkdir run/out; echo mine >run/out/notes"}) {
        const auto lost = train_while(change, {}, 1);
        EXPECT_EQ(lost.exit_code, 1) << lost.err;
        EXPECT_NE(lost.err.find("its state saved: the same command with --resume saves the model"), std::string::npos)
            << lost.err;
        const auto notes = read_file(path("run/out/notes"));
        if (notes.ok()) {
            EXPECT_EQ(*notes, "mine\n");
            fs::remove_all(path("run/out"));
        }
        const auto rest = run_under({}, training({"--resume"}, 1));
        EXPECT_EQ(rest.exit_code, 0) << rest.err;
        EXPECT_TRUE(member(rest.out, "loss").empty()) << rest.out;
        expect_whole("run/out");
        fs::remove_all(path("run"));
        fs::create_directory(path("run"));
    }
}

TEST_F(LostPlaceTest, TheStateFollowsADirectoryThatWasRenamedWithAllThatIsInIt) {
    for (const int ranks : {1, 2}) {
        const auto lost = train_while("mv run moved", {"--save-every", "2"}, ranks);
        EXPECT_NE(lost.err.find("--out " + path("moved/out-saved-")), std::string::npos) << lost.err;
        expect_goes_on(lost, 1, ranks);
        fs::remove_all(path("moved"));
        fs::create_directory(path("run"));
    }
}

TEST_F(LostPlaceTest, WithoutAnyOfItTheStateGoesWhereTheRunWasStarted) {
    const auto in_the_middle = train_while("rm -r run", {"--save-every", "2"}, 2);
    EXPECT_NE(in_the_middle.err.find("--out " + path("work/out-saved-")), std::string::npos) << in_the_middle.err;
    expect_goes_on(in_the_middle, 1, 2);
    fs::create_directory(path("run"));
    expect_goes_on(train_while("rm -r run", {}, 1), 0, 1);
}

// As root, too, whom no mode of a file stops.
TEST_F(LostPlaceTest, WithoutTheRightToWriteTheStateGoesElsewhere) {
    std::vector<std::string> without_rights;
    if (::geteuid() == 0) without_rights = {"setpriv", "--bounding-set=-all", "--inh-caps=-all"};
    for (const int ranks : {1, 2}) {
        const auto lost =
            train_while("chmod a-w run run/out run/out.state", {"--save-every", "2"}, ranks, without_rights);
        EXPECT_NE(lost.err.find("Permission denied"), std::string::npos) << lost.err;
        EXPECT_NE(lost.err.find("--out " + path("work/out-saved-")), std::string::npos) << lost.err;
        expect_goes_on(lost, 1, ranks);
        fs::permissions(path("run"), fs::perms::owner_all);
        fs::permissions(path("run/out.state"), fs::perms::owner_all);
        fs::permissions(path("run/out"), fs::perms::owner_all);
        fs::remove_all(path("run"));
        fs::create_directory(path("run"));
    }
}

// Nobody looks for a batch job's state in its node's own /tmp, which is often memory.
TEST_F(LostPlaceTest, WhoWantsTheStateBesideOutAloneHasItInNoTemporaryDirectory) {
    std::vector<std::string> starter;
    if (::geteuid() == 0) starter = {"setpriv", "--bounding-set=-all", "--inh-caps=-all"};
    starter.insert(starter.end(), {"env", "TMPDIR=" + path("tmp")});
    for (const char* beside : {"", "1"}) {
        auto with = starter;
        with.push_back(std::string("ATOLL_STATE_BESIDE_OUT=") + beside);
        const auto lost =
            train_while("chmod a-w run run/out run/out.state work", {"--save-every", "2"}, 1, std::move(with));
        EXPECT_EQ(lost.exit_code, 1);
        EXPECT_EQ(lost.err.find(path("tmp/out-saved-")) == std::string::npos, *beside != '\0') << lost.err;
        EXPECT_EQ(fs::is_empty(path("tmp")), *beside != '\0');
        for (const char* place : {"run", "run/out", "run/out.state", "work"})
            fs::permissions(path(place), fs::perms::owner_all);
        for (const char* place : {"run", "tmp"}) {
            fs::remove_all(path(place));
            fs::create_directory(path(place));
        }
    }
}

TEST_F(LostPlaceTest, AnotherDirectoryInThePlaceOfTheStatesIsLeftAsItIs) {
    const auto lost = train_while("mv run/out.state run/moved; mkdir run/out.state; echo mine >run/out.state/notes",
                                  {"--save-every", "2"}, 1);
    EXPECT_EQ(read_file(path("run/out.state/notes")).value(), "mine\n");
    EXPECT_EQ(std::distance(fs::directory_iterator(path("run/out.state")), fs::directory_iterator()), 1);
    expect_goes_on(lost, 1, 1);
}

}  // namespace
}  // namespace atl::program
