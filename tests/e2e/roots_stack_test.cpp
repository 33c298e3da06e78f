// A stack that root starts from a clone in a home of mode 0700.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "shared/base/subprocess.h"
#include "tests/e2e/small_federation.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;
using json::Json;

struct Process {
    std::string name;
    std::set<std::string> users;  // real, effective, saved and of its files
    std::string groups;
    std::string capabilities;
    pid_t pid = 0;
    pid_t parent = 0;
};

Process read_process(pid_t pid) {
    Process process;
    process.pid = pid;
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
        std::istringstream words(line);
        std::string key, word;
        words >> key;
        if (key == "Name:") words >> process.name;
        if (key == "PPid:") words >> process.parent;
        if (key == "CapEff:") words >> process.capabilities;
        while (key == "Uid:" && words >> word) process.users.insert(word);
        while (key == "Groups:" && words >> word) process.groups += word + " ";
    }
    return process;
}

// What `atoll up` has left, with all that this has started.
std::vector<Process> processes_of(const fs::path& stack) {
    std::set<pid_t> ours;
    for (const auto& entry : fs::directory_iterator(stack / "run"))
        if (entry.path().extension() == ".pid") ours.insert(std::atoi(read_file(entry.path()).value().c_str()));
    std::vector<Process> all;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        pid_t pid = 0;
        const bool is_process = std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc();
        if (is_process) all.push_back(read_process(pid));
    }
    std::vector<Process> found;
    for (std::size_t before = 0; before != ours.size();) {  // children of children
        before = ours.size();
        for (const Process& process : all)
            if (ours.contains(process.parent)) ours.insert(process.pid);
    }
    for (const Process& process : all)
        if (ours.contains(process.pid)) found.push_back(process);
    return found;
}

// Nobody: it is gone.
uid_t owner_of(const fs::path& file) {
    struct stat info{};
    return ::lstat(file.c_str(), &info) == 0 ? info.st_uid : 65534;
}

// The programs of this build as `./dev` has them, where root alone can get.
fs::path make_clone(const fs::path& home) {
    fs::permissions(home, fs::perms(0700));
    const fs::path programs = home / "build/release/bin";
    fs::create_directories(programs);
    for (const char* name :
         {"atoll", "atoll-registry", "atoll-store", "atoll-dispatch", "atoll-aggregation", "atoll-trainer"})
        fs::copy_file(SmallFederation::program(name), programs / name);
    fs::create_directories(home / "build/kafka");
    fs::copy(fs::canonical(SmallFederation::program("../../kafka/lib")), home / "build/kafka/lib");
    return programs;
}

TEST(RootsStackTest, NothingOfItIsRootAlsoFromACloneInAPrivateHome) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const TemporaryDirectory home("atoll-home");
    FederationOptions options;
    options.facilities = {"a"};
    options.programs = make_clone(home.path());
    SmallFederation federation(options);
    const Status ready = federation.set_up();  // with a job at the facility that prepares its text
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const fs::path stack = federation.path("stack");
    struct stat info{};
    ASSERT_EQ(::stat(stack.c_str(), &info), 0);
    ASSERT_NE(info.st_uid, 0U);

    std::set<std::string> names;
    for (const Process& process : processes_of(stack)) {
        names.insert(process.name);
        EXPECT_EQ(process.users, std::set<std::string>{std::to_string(info.st_uid)}) << process.name;
        EXPECT_EQ((" " + process.groups).find(" 0 "), std::string::npos) << process.name << ": " << process.groups;
        EXPECT_EQ(process.capabilities, "0000000000000000") << process.name;
    }
    for (const char* name : {"postgres", "java", "nginx", "atoll-registry", "atoll-store", "atoll-dispatch"})
        EXPECT_TRUE(names.contains(name)) << name << " is not among them";

    // What jobs of a local facility have written, and what they cannot read.
    int count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(federation.path("site-a"))) {
        ++count;
        EXPECT_EQ(owner_of(entry.path()), info.st_uid) << entry.path();
    }
    EXPECT_GT(count, 1);
    const fs::path secret = federation.path("secret.jsonl");
    ASSERT_TRUE(write_file_atomic(secret, "{\"text\": \"root's\"}\n", 0600).ok());
    const auto stolen = federation.coordinator().prepare({{"facility", "a"},
                                                          {"dataset", "text-a"},
                                                          {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                                                          {"input", secret.string()},
                                                          {"seq_len", 32},
                                                          {"batching", "packing"},
                                                          {"validation_percent", 10}});
    ASSERT_TRUE(stolen.ok()) << stolen.error().message;
    const Status refused = federation.coordinator().await_preparation(*stolen, std::chrono::minutes(2));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("secret.jsonl"), std::string::npos) << refused.error().message;

    // Once more changes nothing, and root's other commands agree.
    const auto registry = read_file(stack / "run/registry.pid").value();
    ASSERT_TRUE(federation.kill_component("store").ok());
    const Status again = federation.up();
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(read_file(stack / "run/registry.pid").value(), registry);
    const auto status = run_command({options.programs / "atoll", "status", "--state", stack.string()});
    EXPECT_EQ(status->exit_code, 0) << status->out << status->err;
    const auto rotated = run_command({options.programs / "atoll", "token", "rotate-key", "--state", stack.string()});
    EXPECT_EQ(rotated->exit_code, 0) << rotated->err;
    for (const auto& entry : fs::recursive_directory_iterator(stack)) {
        EXPECT_NE(owner_of(entry.path()), 0U) << entry.path();
    }
}

}  // namespace
}  // namespace atl::e2e
