#include <gtest/gtest.h>

#include <sstream>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::cli {
namespace {

// The program itself; there is no coordinator.
CommandResult run(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {ATOLL_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    CommandOptions options;
    options.environment = {{"ATOLL_GATEWAY", "http://127.0.0.1:1"}, {"ATOLL_TOKEN", "none"}};
    return run_command(command, options).value();
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

struct Typed {
    std::vector<std::string> arguments;
    std::string answer;  // its first line
};

TEST(UsageTest, AMistypedWordIsNamedWithTheNearestThatThereIs) {
    for (const Typed& typed : std::vector<Typed>{
             {{"job", "lst"}, "error: `atoll job` has no command lst; did you mean list?"},
             {{"jbo", "list"}, "error: `atoll` has no command jbo; did you mean job?"},
             {{"--state", "/tmp/x", "model", "pul"}, "error: `atoll model` has no command pul; did you mean pull?"},
             {{"job", "list", "--jsno"}, "error: `atoll job list` has no flag --jsno; did you mean --json?"},
             {{"facility", "add", "x", "--wrok-dir", "/a"},
              "error: `atoll facility add` has no flag --wrok-dir; did you mean --work-dir?"},
             {{"facility", "add", "x", "--wrok-dir=/a"},
              "error: `atoll facility add` has no flag --wrok-dir; did you mean --work-dir?"},
             {{"job", "watch"}, "error: `atoll job watch` needs JOB, the job's id, its name, or newest"},
             {{"job", "watch", "--colour", "x"}, "error: `atoll job watch` has no flag --colour"}}) {
        const CommandResult result = run(typed.arguments);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(first_line(result.err), typed.answer);
    }
    EXPECT_NE(
        run({"--json", "job", "lst"}).err.find(R"({"error":{"field":"","message":"`atoll job` has no command lst)"),
        std::string::npos);
}

TEST(UsageTest, BadInputExitsWith2) {
    const TemporaryDirectory directory;
    const std::string there = directory.path().string();
    const std::string absent = (directory.path() / "absent").string();
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"job", "submit", absent},
             {"job", "submit", absent + ".yaml"},
             {"job", "submit", there},
             {"job", "init", absent + "/job.yaml"},
             {"job", "init", there},
             {"job", "logs", "newest", "--tail", "all"},
             {"job", "logs", "newest", "--tail", "-5"},
             {"facility", "add", "x", "--file", absent},
             {"facility", "set", "x", "--file", absent + ".yaml"},
             {"model", "push", "m", absent},
             {"model", "import", "m", absent},
             {"model", "import", "m", there + "/config.json"},
             {"model", "verify", "m@v1", "--dir", absent},
             {"aggregate", "--out", there + "/out", absent},
             {"--token-file", absent, "job", "list"},
             {"--gateway", "coordinator:7400", "job", "list"},
             {"ping", "--store", "ftp://coordinator"},
             {"stage", "--store", "coordinator", "--version", "v", "--out", absent},
             {"--state", absent, "status"},
             {"up", "--state", there + "/stack", "--only", "none", "--port-base", "65530"},
             {"up", "--state", there + "/stack", "--only", "none", "--port-base", "any"}}) {
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(arguments) << "\n" << result.err;
        EXPECT_EQ(result.out, "");
    }
    EXPECT_EQ(first_line(run({"round", "show", "newest", "third"}).err), "error: round: cannot be 'third'");
    EXPECT_NE(run({"up", "--only", "none", "--port-base", "65530"}).err.find("--port-base"), std::string::npos);
}

TEST(UsageTest, ACommandWithoutItsVerbListsTheVerbs) {
    const CommandResult result = run({"job"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(first_line(result.err),
              "error: `atoll job` needs a command: init, submit, list, show, watch, pause, resume, cancel, logs");
    EXPECT_NE(run({"job", "frobnicate"}).err.find("there are init, submit, "), std::string::npos);
}

// Names under "Subcommands:" in a command's help.
std::vector<std::string> subcommands_in(const std::string& help) {
    std::vector<std::string> names;
    const std::size_t at = help.find("Subcommands:\n");
    if (at == std::string::npos) return names;
    std::istringstream lines(help.substr(at));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.starts_with("  "))
        if (line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
    return names;
}

// How many commands there are, this one included.
int walk_helps(const std::vector<std::string>& command) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const CommandResult result = run(arguments);
    std::string name = "atoll";
    for (const std::string& word : command) name += " " + word;
    EXPECT_EQ(result.exit_code, 0) << name;
    EXPECT_NE(result.out.find("Example"), std::string::npos) << name << " --help has no example";
    EXPECT_NE(result.out.find("\n  atoll "), std::string::npos) << name << " --help has no example";
    int count = 1;
    for (const std::string& verb : subcommands_in(result.out)) {
        std::vector<std::string> longer = command;
        longer.push_back(verb);
        count += walk_helps(longer);
    }
    return count;
}

TEST(UsageTest, EveryHelpHasAnExample) {
    EXPECT_GT(walk_helps({}), 40);
}

TEST(UsageTest, TheHelpOffersOnlyWhatIsBuilt) {
    const std::string help = run({"facility", "add", "--help"}).out;
    for (const char* unbuilt : {"slurm", "flux", "--image"})
        EXPECT_EQ(help.find(unbuilt), std::string::npos) << unbuilt;
}

TEST(UsageTest, TheProgramsSayTheirVersion) {
    EXPECT_EQ(run({"--version"}).out, "atoll " ATOLL_VERSION "\n");
    EXPECT_EQ(run({"--version"}).exit_code, 0);
}

TEST(UsageTest, DeletingAsksFirst) {
    const TemporaryDirectory state;
    ASSERT_TRUE(write_file_atomic(state.path() / "stack.json", "{}").ok());
    const CommandResult result = run({"down", "--delete", "--state", state.path().string()});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find("give --yes"), std::string::npos) << result.err;
    EXPECT_TRUE(std::filesystem::exists(state.path() / "stack.json"));
    EXPECT_EQ(run({"down", "--delete", "--yes", "--state", state.path().string()}).exit_code, 0);
    EXPECT_FALSE(std::filesystem::exists(state.path() / "stack.json"));
}

TEST(UsageTest, TheJobFileToStartFromNamesEveryMember) {
    const CommandResult result = run({"job", "init"});
    EXPECT_EQ(result.exit_code, 0);
    for (const char* member : {"model: {name: llama, version: v1}", "dataset: diaries-it", "dataset_version: 1"})
        EXPECT_NE(result.out.find(member), std::string::npos) << member;
}

}  // namespace
}  // namespace atl::cli
