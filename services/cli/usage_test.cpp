#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::cli {
namespace {

// The program itself, behind these words; there is no coordinator.
CommandResult run_by(std::vector<std::string> command, const std::vector<std::string>& arguments) {
    command.emplace_back(ATOLL_PROGRAM);
    command.insert(command.end(), arguments.begin(), arguments.end());
    CommandOptions options;
    options.environment = {{"ATOLL_GATEWAY", "http://127.0.0.1:1"}, {"ATOLL_TOKEN", "none"}};
    return run_command(command, options).value();
}

CommandResult run(const std::vector<std::string>& arguments) {
    return run_by({}, arguments);
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

struct Typed {
    std::vector<std::string> arguments;
    std::vector<std::string> named;  // in the first line of the answer
};

TEST(UsageTest, AMistypedWordIsNamedWithTheNearestThatThereIs) {
    for (const Typed& typed : std::vector<Typed>{
             {{"job", "lst"}, {"`atoll job`", " lst", " list?"}},
             {{"jbo", "list"}, {"`atoll`", " jbo", " job?"}},
             {{"--state", "/tmp/x", "model", "pul"}, {"`atoll model`", " pul", " pull?"}},
             {{"job", "list", "--jsno"}, {"`atoll job list`", " --jsno", " --json?"}},
             {{"facility", "add", "x", "--wrok-dir", "/a"}, {"`atoll facility add`", " --wrok-dir", " --work-dir?"}},
             {{"facility", "add", "x", "--wrok-dir=/a"}, {"`atoll facility add`", " --wrok-dir", " --work-dir?"}},
             {{"job", "watch"}, {"`atoll job watch`", " JOB,", "newest"}},
             {{"job", "watch", "--colour", "x"}, {"`atoll job watch`", " --colour"}}}) {
        const CommandResult result = run(typed.arguments);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_EQ(result.out, "");
        for (const std::string& named : typed.named)
            EXPECT_NE(first_line(result.err).find(named), std::string::npos) << result.err;
    }
    EXPECT_TRUE(run({"--json", "job", "lst"}).err.starts_with(R"({"error":{"field":"","message":")"));
}

TEST(UsageTest, AFlagWithUnderscoresIsTheFlag) {
    for (const char* flag : {"--token_file=/no/such", "--token-file=/no/such"})
        EXPECT_EQ(run({flag, "job", "list"}).err, run({"--token-file", "/no/such", "job", "list"}).err) << flag;
    EXPECT_EQ(run({"--token_file", "/no/such_file", "job", "list"}).err,
              run({"--token-file", "/no/such_file", "job", "list"}).err);
    EXPECT_NE(run({"job", "list", "--no_such"}).err.find("no flag --no_such"), std::string::npos);
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
             {"up", "--state", there + "/stack", "--only", "none", "--port-base", "65534"},
             {"up", "--state", there + "/stack", "--only", "none", "--port-base", "any"}}) {
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(arguments) << "\n" << result.err;
        EXPECT_EQ(result.out, "");
    }
    const std::string third = first_line(run({"round", "show", "newest", "third"}).err);
    EXPECT_TRUE(third.starts_with("error: round: ") && third.ends_with("'third'")) << third;
    EXPECT_NE(run({"up", "--only", "none", "--port-base", "65534"}).err.find("--port-base"), std::string::npos);
}

TEST(UsageTest, WhatUpCannotDoIsNamedBeforeAnythingIsMade) {
    const TemporaryDirectory directory;
    const auto file = [&](const std::string& name) { return (directory.path() / name).string(); };
    const auto make_key = [&](const std::string& key, const std::string& certificate) {
        const auto made =
            run_command({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                         "-keyout", file(key), "-out", file(certificate), "-days", "2", "-subj", "/CN=127.0.0.1"});
        ASSERT_EQ(made->exit_code, 0) << made->err;
    };
    make_key("key.pem", "cert.pem");
    make_key("other.pem", "other-cert.pem");
    ASSERT_TRUE(write_file_atomic(file("text"), "no PEM\n").ok());
    const auto up = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"up", "--state", file("s"), "--programs", file("absent")});
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_FALSE(std::filesystem::exists(file("s")));
        return result.err.substr(result.err.find("error: "));
    };
    const auto listen = [&](const std::string& address, const std::string& certificate, const std::string& key) {
        return up({"--only", "registry", "--public-url", "https://c", "--public-listen", address, "--tls-certificate",
                   file(certificate), "--tls-key", file(key)});
    };
    EXPECT_NE(up({"--only", "foo"}).find("'foo'; there are postgres, kafka, registry"), std::string::npos);
    EXPECT_TRUE(up({"--only", "registry,,store"}).starts_with("error: --only: "));
    for (const char* address : {"foo", ":7443", "0.0.0.0:", "0.0.0.0:70000", "a b:7443", "0.0.0.0:7443x"})
        EXPECT_TRUE(listen(address, "cert.pem", "key.pem").starts_with("error: --public-listen: ")) << address;
    EXPECT_TRUE(listen("0.0.0.0:7443", "text", "key.pem").starts_with("error: --tls-certificate: "));
    EXPECT_TRUE(listen("0.0.0.0:7443", "cert.pem", "text").starts_with("error: --tls-key: "));
    EXPECT_TRUE(listen("0.0.0.0:7443", "cert.pem", "other.pem").starts_with("error: --tls-key: "));
    EXPECT_NE(listen("[::]:7443", "cert.pem", "key.pem").find("--programs"), std::string::npos) << "these are good";
}

TEST(UsageTest, AHintQuotesAPathWithASpace) {
    const TemporaryDirectory directory;
    const std::string state = (directory.path() / "my state").string();
    const std::string said = run({"status", "--state", state}).err;
    EXPECT_NE(said.find("`atoll up --state '" + state + "'`"), std::string::npos) << said;
}

TEST(UsageTest, ACommandWithoutItsVerbListsTheVerbs) {
    const CommandResult result = run({"job"});
    EXPECT_EQ(result.exit_code, 2);
    const std::string verbs =
        "init, submit, script, list, show, watch, pause, cancel, resume, readmit, logs, metrics, rm, prune";
    EXPECT_TRUE(first_line(result.err).ends_with(verbs)) << result.err;
    EXPECT_TRUE(first_line(run({"job", "frobnicate"}).err).ends_with(verbs));
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
    EXPECT_FALSE(std::regex_search(result.out, std::regex("[a-z]Kind\\b")))
        << name << " --help names a type of the code";
    int count = 1;
    for (const std::string& verb : subcommands_in(result.out)) {
        std::vector<std::string> longer = command;
        longer.push_back(verb);
        count += walk_helps(longer);
    }
    return count;
}

TEST(UsageTest, HelpIsAboutACommandThatThereIs) {
    for (const std::vector<std::string>& asked :
         std::vector<std::vector<std::string>>{{"help"}, {"--json", "help"}, {"--state", "/tmp/x", "help", "job"}}) {
        const CommandResult result = run(asked);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_NE(result.out.find("--help"), std::string::npos) << result.out;
    }
    for (const Typed& typed : std::vector<Typed>{{{"help", "nosuch"}, {"`atoll`", "no command nosuch", "job"}},
                                                 {{"help", "job", "wacth"}, {"`atoll job`", " watch?"}},
                                                 {{"help", "credentials", "extra"}, {"no help on extra"}}}) {
        const CommandResult result = run(typed.arguments);
        EXPECT_EQ(result.exit_code, 2) << result.out;
        for (const std::string& named : typed.named)
            EXPECT_NE(first_line(result.err).find(named), std::string::npos) << result.err;
        for (const char* hidden : {"supervise", "component"})
            EXPECT_EQ(result.err.find(hidden), std::string::npos) << result.err;
    }
}

TEST(UsageTest, EveryHelpHasAnExampleAndNoTypeOfTheCode) {
    EXPECT_GT(walk_helps({}), 40);
}

TEST(UsageTest, TheHelpOffersOnlyWhatIsBuilt) {
    const std::string help = run({"facility", "add", "--help"}).out;
    for (const char* unbuilt : {"pbs", "flux"}) EXPECT_EQ(help.find(unbuilt), std::string::npos) << unbuilt;
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
    EXPECT_NE(result.err.find("--yes"), std::string::npos) << result.err;
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

TEST(UsageTest, AReaderThatHasSeenEnoughEndsTheProgramQuietly) {
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"job", "init"}, {"--json", "job", "init"}, {"--help"}, {"help", "job", "init"}, {"--version"}}) {
        const CommandResult result =
            run_by({"bash", "-c", "exec 3> >(:); wait $!; \"$@\" >&3; exit $?", "bash"}, arguments);
        EXPECT_EQ(result.exit_code, 141) << arguments[0];
        EXPECT_EQ(result.err, "") << arguments[0];
    }
}

TEST(UsageTest, OutputThatCannotBeWrittenIsAFailure) {
    const CommandResult result = run_by({"sh", "-c", "exec \"$@\" >/dev/full", "sh"}, {"job", "init"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(result.err, "error: standard output could not be written: No space left on device\n");
}

}  // namespace
}  // namespace atl::cli
