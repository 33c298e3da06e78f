#include "services/stack/stack_user.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "services/stack/prepare_user.h"
#include "services/stack/process.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

// A state directory that others can reach, and one that they cannot with what root has.
class StackUserTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
        fs::permissions(directory_.path(), fs::perms(0711));
        fs::create_directories(home_ / "bin");
        fs::permissions(home_, fs::perms(0700));
        for (const char* name : {"atoll", "atoll-registry", "atoll-store", "atoll-dispatch", "atoll-aggregation"})
            write(home_ / "bin" / name, "first", 0755);
        write(home_ / "kafka/kafka_2.13.jar", "jar");
        options_.state = directory_.path() / "state";
        options_.programs = home_ / "bin";
        options_.kafka_jars = home_ / "kafka";
        options_.atoll = home_ / "bin/atoll";
        options_.port_base = 0;
    }
    static void write(const fs::path& file, const std::string& text, unsigned mode = 0600) {
        fs::create_directories(file.parent_path());
        ASSERT_TRUE(write_file_atomic(file, text, mode).ok());
    }
    static uid_t owner(const fs::path& file) {
        struct stat info{};
        EXPECT_EQ(::lstat(file.c_str(), &info), 0) << file;
        return info.st_uid;
    }
    Result<StackUser> prepare(const std::string& asked = "nobody") {
        said_.clear();
        return prepare_user(options_, asked, [this](const std::string& line) { said_ += line + "\n"; });
    }
    // As a command of nobody's would find them.
    bool can_read(const StackUser& user, const fs::path& file) {
        const ActingAs acting(user);
        return read_file(file).ok();
    }

    TemporaryDirectory directory_;
    fs::path home_ = directory_.path() / "home";
    UpOptions options_;
    std::string said_;
};

TEST_F(StackUserTest, RootOpensNothingThatTheUserHasNamed) {
    const auto user = prepare();
    ASSERT_TRUE(user.ok()) << user.error().message;
    const fs::path secret = home_ / "secret";
    write(secret, "root's own");
    const fs::path theirs = directory_.path() / "theirs";
    for (const char* name : {"kafka_2.13.jar", "atoll"}) write(theirs / name, "theirs", 0755);
    fs::permissions(theirs, fs::perms(0755));
    fs::create_symlink(secret, theirs / "secret.jar");
    fs::create_symlink(secret, theirs / "atoll-store");
    const std::string named = theirs.string();
    write(options_.state / "stack.json", R"({"kafka_jars":")" + named + R"(","programs":")" + named + "\"}", 0644);
    options_.kafka_jars.clear();
    options_.programs.clear();
    (void)prepare();  // where this machine has no Kafka it says so
    EXPECT_FALSE(fs::exists(options_.state / "lib/atoll/kafka/secret.jar"));
    EXPECT_NE(read_file(options_.state / "bin/atoll-store").value(), "root's own");

    const Layout layout{options_.state};
    fs::create_directories(layout.token("admin").parent_path());
    write(layout.token("viewer"), "the user's own", 0644);
    EXPECT_EQ(read_token(layout, "viewer").value(), "the user's own");
    fs::create_symlink(secret, layout.token("admin"));
    EXPECT_EQ(read_file(layout.token("admin")).value(), "root's own") << "root could";
    EXPECT_FALSE(read_token(layout, "admin").ok()) << "root's file behind the user's link";
}

// What root does on a stack meanwhile may run programs that the user's stack.json names, and signal what their files
// say.
TEST_F(StackUserTest, WhatIsStartedOrSignalledWhileRootActsAsTheUserIsTheUsers) {
    const auto user = prepare();
    ASSERT_TRUE(user.ok()) << user.error().message;
    const Layout layout{options_.state};
    const fs::path roots = directory_.path() / "roots.pid";
    ASSERT_TRUE(start_recorded({"/bin/sleep", "300"}, roots, directory_.path() / "log").ok());
    fs::create_directories(layout.pid_file("kafka").parent_path());
    write(layout.pid_file("kafka"), read_file(roots).value(), 0644);
    fs::permissions(layout.pid_file("kafka").parent_path(), fs::perms(0755));
    {
        const ActingAs acting(*user);
        CommandOptions elsewhere;
        elsewhere.directory = "/";
        const auto ran = run_command({"/bin/sh", "-c", "grep -E '^[UG]id:' /proc/self/status"}, elsewhere);
        ASSERT_TRUE(ran.ok());
        EXPECT_EQ(ran->out.find("\t0"), std::string::npos) << ran->out;
        (void)stop_recorded(layout.pid_file("kafka"), SIGKILL, std::chrono::milliseconds(1));
    }
    EXPECT_EQ(::geteuid(), 0U);
    EXPECT_TRUE(running_process(roots).has_value()) << "root's own process";
    ASSERT_TRUE(stop_recorded(roots, SIGKILL, std::chrono::seconds(5)).ok());
}

TEST_F(StackUserTest, ADirectoryWithRootsProgramsIsNotGivenAway) {
    write(options_.state / "bin/atoll", "root's own", 0755);
    const auto refused = prepare();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("holds what is not Atoll's (bin)"), std::string::npos);
    EXPECT_EQ(owner(options_.state / "bin/atoll"), 0U);
}

TEST_F(StackUserTest, WhatTheUserCannotReachIsCopiedWhereItCan) {
    const auto user = prepare();
    ASSERT_TRUE(user.ok()) << user.error().message;
    EXPECT_EQ(user->name, "nobody");
    EXPECT_EQ(owner(options_.state), user->uid);
    EXPECT_EQ(options_.programs, options_.state / "bin");
    EXPECT_EQ(options_.atoll, options_.state / "bin/atoll");
    EXPECT_EQ(options_.kafka_jars, options_.state / "lib/atoll/kafka");
    EXPECT_TRUE(can_read(*user, options_.state / "bin/atoll-store"));
    EXPECT_FALSE(can_read(*user, home_ / "bin/atoll-store"));
    EXPECT_NE(said_.find("/state/bin: copies of what the user nobody cannot reach in "), std::string::npos) << said_;
    EXPECT_NE(::access((options_.state / "bin/atoll-store").c_str(), X_OK), -1);

    const auto before = fs::last_write_time(options_.state / "bin/atoll-store");
    options_.programs = home_ / "bin";
    write(home_ / "bin/atoll-store", "second", 0755);
    fs::remove(home_ / "kafka/kafka_2.13.jar");
    write(home_ / "kafka/kafka_4.jar", "jar");
    options_.kafka_jars = home_ / "kafka";
    ASSERT_TRUE(prepare().ok());
    EXPECT_EQ(read_file(options_.state / "bin/atoll-store").value(), "second") << "what was built anew is taken";
    EXPECT_GT(fs::last_write_time(options_.state / "bin/atoll-store"), before);
    EXPECT_FALSE(fs::exists(options_.kafka_jars / "kafka_2.13.jar")) << "two Kafkas are none";

    // As after an `up` without flags, which remembers the copies: they are not what is copied.
    write(Layout{options_.state}.file(), nlohmann::json{{"programs", options_.state / "bin"}}.dump());
    options_.programs.clear();
    options_.only = {"postgres"};
    ASSERT_TRUE(prepare().ok());
    EXPECT_TRUE(options_.programs == fs::read_symlink("/proc/self/exe").parent_path() ||
                read_file(options_.state / "bin/atoll-store").value() != "second")
        << options_.programs;
}

TEST_F(StackUserTest, WhatTheUserReachesStaysWhereItIs) {
    fs::permissions(home_, fs::perms(0711));
    fs::permissions(home_ / "kafka/kafka_2.13.jar", fs::perms(0644));
    fs::permissions(home_ / "kafka", fs::perms(0755));
    ASSERT_TRUE(prepare().ok());
    EXPECT_EQ(options_.programs, home_ / "bin");
    EXPECT_EQ(options_.atoll, home_ / "bin/atoll");
    EXPECT_EQ(options_.kafka_jars, home_ / "kafka");
    EXPECT_EQ(said_, "");
}

TEST_F(StackUserTest, AStateDirectoryOfRootsIsTakenOverAndThatIsSaid) {
    const Layout layout{options_.state};
    ASSERT_TRUE(make_directories(layout).ok());
    write(layout.file(), nlohmann::json{{"components", {"postgres"}}}.dump());
    write(layout.private_key(), "key");
    write(layout.postgres() / "data/PG_VERSION", "15");
    const fs::path outside = directory_.path() / "outside";
    write(outside, "root's");
    fs::create_symlink(outside, layout.postgres() / "data/link");
    const auto user = prepare();
    ASSERT_TRUE(user.ok()) << user.error().message;
    for (const fs::path& one :
         {layout.state, layout.file(), layout.private_key(), layout.postgres() / "data/PG_VERSION"})
        EXPECT_EQ(owner(one), user->uid) << one;
    EXPECT_EQ(owner(outside), 0U) << "a link gives nothing away";
    EXPECT_NE(said_.find("was root's and belongs to the user nobody now"), std::string::npos) << said_;
    ASSERT_TRUE(prepare("").ok()) << "it is remembered by whose it is";
    EXPECT_EQ(said_.find("was root's"), std::string::npos) << said_;
    EXPECT_EQ(prepare("daemon").error().field, "--user");
}

TEST_F(StackUserTest, WhatIsNotAtollsOrStillRunsOrCannotBeReachedIsNotTaken) {
    EXPECT_EQ(prepare("root").error().field, "--user");
    EXPECT_EQ(prepare("nobody-of-that-name").error().field, "--user");
    write(options_.state / "letters/to-ada", "dear");
    const auto strange = prepare();
    ASSERT_FALSE(strange.ok());
    EXPECT_NE(strange.error().message.find("letters"), std::string::npos) << strange.error().message;
    EXPECT_EQ(owner(options_.state), 0U);

    options_.state = home_ / "state";
    const auto out_of_reach = prepare();
    ASSERT_FALSE(out_of_reach.ok());
    EXPECT_NE(out_of_reach.error().message.find("cannot enter " + home_.string()), std::string::npos)
        << out_of_reach.error().message;
    EXPECT_FALSE(fs::exists(options_.state));

    options_.state = directory_.path() / "running";
    const Layout layout{options_.state};
    ASSERT_TRUE(make_directories(layout).ok());
    ASSERT_TRUE(start_recorded({"/bin/sleep", "300"}, layout.pid_file("kafka"), layout.log("kafka")).ok());
    const auto running = prepare();
    ASSERT_FALSE(running.ok());
    EXPECT_NE(running.error().message.find("runs as root"), std::string::npos) << running.error().message;
    EXPECT_EQ(owner(options_.state), 0U);
    ASSERT_TRUE(stop_recorded(layout.pid_file("kafka"), SIGKILL, std::chrono::seconds(5)).ok());
}

TEST_F(StackUserTest, AnOwnersCommandsAreTheOwners) {
    ASSERT_TRUE(prepare().ok());
    const fs::path secret = directory_.path() / "secret";
    write(secret, "root's");
    const fs::path link = home_ / "state";
    fs::create_directory_symlink(options_.state, link);
    EXPECT_EXIT(
        {
            fs::path state = link;
            const bool is_owner = become_owner(state).ok() && state == fs::canonical(options_.state) &&
                                  ::geteuid() == owner(state) && ::getuid() == owner(state) && ::setuid(0) != 0 &&
                                  !read_file(secret).ok() && std::string(::getenv("USER")) == "nobody";
            ::_exit(is_owner ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace atl::stack
