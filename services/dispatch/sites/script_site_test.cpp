#include "services/dispatch/sites/script_site.h"

#include <gtest/gtest.h>

#include <thread>

#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

class ScriptSiteTest : public testing::Test {
  protected:
    ScriptSite site(std::map<std::string, std::string> environment = {}) {
        Facility facility;
        facility.environment = std::move(environment);
        facility.name = "leonardo";
        facility.batch.kind = "local";
        facility.work_dir = (directory_.path() / "work").string();
        return ScriptSite(facility, make_local_transport(), directory_.path().string());
    }
    // The site's `atoll`, with $out set from --out.
    void program(const std::string& body) {
        const std::string text =
            "#!/bin/sh\ncase $1 in stage) out=$7 ;; esac\n" + body + "\n";  // stage --store U --version D --out O
        ASSERT_TRUE(write_file_atomic(directory_.path() / "atoll", text, 0755).ok());
        ASSERT_TRUE(write_file_atomic(directory_.path() / "atoll-trainer", "#!/bin/sh\n", 0755).ok());
    }
    static Result<Look> look(ScriptSite site, const std::string& directory, std::int64_t log_offset) {
        ATOLL_TRY(const auto looks, site.look({{directory, log_offset}}));
        return looks.at(0);
    }
    bool exists(const std::string& path) { return std::filesystem::exists(directory_.path() / "work" / path); }

    TemporaryDirectory directory_;
};

TEST_F(ScriptSiteTest, AStagedVersionGoesWithItsLastPin) {
    program("mkdir -p \"$out\"");
    ASSERT_TRUE(site().stage({{"v"}, "job1", "url", "token"}).ok());
    ASSERT_TRUE(site().stage({{"v"}, "job2", "url", "token"}).ok());
    ASSERT_TRUE(site().clean("job1", {}).ok());
    EXPECT_TRUE(exists("models/v"));
    ASSERT_TRUE(site().clean("job2", {}).ok());
    EXPECT_FALSE(exists("models/v"));
    ASSERT_TRUE(site().clean("job2", {}).ok()) << "again, with nothing left";
}

TEST_F(ScriptSiteTest, WhatAStagingDidNotBringToItsEndGoesWithTheLastPin) {
    program("mkdir -p \"$(dirname \"$out\")/.$(basename \"$out\").1234.partial\"; exit 75");
    for (const char* job : {"job1", "job2"}) ASSERT_FALSE(site().stage({{"v"}, job, "url", "token"}).ok());
    ASSERT_TRUE(site().clean("job1", {}).ok());
    EXPECT_TRUE(exists("models/.v.1234.partial")) << "the other goes on from it";
    ASSERT_TRUE(site().clean("job2", {}).ok());
    EXPECT_FALSE(exists("models/.v.1234.partial"));
}

TEST_F(ScriptSiteTest, CleaningOneJobNeverPullsAVersionFromUnderAnother) {
    program("mkdir -p \"$out\"");
    std::filesystem::create_directories(directory_.path() / "work");
    std::jthread cleaner([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) EXPECT_TRUE(site().clean("other", {}).ok());
    });
    std::jthread other([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) EXPECT_TRUE(site().stage({{"v"}, "other", "url", "token"}).ok());
    });
    for (int i = 0; i < 25; ++i) {
        const Status staged = site().stage({{"v"}, "mine", "url", "token"});
        ASSERT_TRUE(staged.ok()) << staged.error().message;
        ASSERT_TRUE(exists("models/v"));
        ASSERT_TRUE(site().clean("mine", {}).ok());
    }
}

TEST_F(ScriptSiteTest, AFileSystemThatIsAwaySaysNothingOfAnAttempt) {
    const std::string attempt = site().task_directory("task", 1);
    const auto file_system = directory_.path() / "work";
    std::filesystem::create_directories(file_system / "tasks");
    ASSERT_TRUE(look(site(), attempt, 0).ok()) << "an attempt that is not there";
    std::filesystem::rename(file_system, directory_.path() / "away");
    const auto found = look(site(), attempt, 0);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, ErrorCode::kUnavailable);
}

TEST_F(ScriptSiteTest, NothingCountsAsCleanWhereAFileSystemIsAway) {
    program("mkdir -p \"$out\"");
    ASSERT_TRUE(site().stage({{"v"}, "job", "url", "token"}).ok());
    std::filesystem::rename(directory_.path() / "work", directory_.path() / "away");
    const Status cleaned = site().clean("job", {"task"});
    ASSERT_FALSE(cleaned.ok());
    EXPECT_EQ(cleaned.error().code, ErrorCode::kUnavailable);
    std::filesystem::rename(directory_.path() / "away", directory_.path() / "work");
    ASSERT_TRUE(site().clean("job", {"task"}).ok());
    EXPECT_FALSE(exists("models/v"));
}

TEST_F(ScriptSiteTest, NothingIsStagedWhereAFileSystemIsAway) {
    program("mkdir -p \"$out\"");
    Facility facility;
    facility.batch.kind = "local";
    facility.work_dir = (directory_.path() / "away/work").string();
    const Status staged =
        ScriptSite(facility, make_local_transport(), directory_.path().string()).stage({{"v"}, "job", "url", "token"});
    ASSERT_FALSE(staged.ok());
    EXPECT_EQ(staged.error().code, ErrorCode::kUnavailable);
    EXPECT_FALSE(std::filesystem::exists(directory_.path() / "away"));
}

// `rm` of the site's PATH: of a directory tree it takes one file, then kills the shell that called it.
constexpr const char* kKilledInTheMiddle = R"sh(#!/bin/sh
for word; do
    [ ! -d "$word" ] || { /bin/rm -f "$word/model.safetensors"; kill -9 "$PPID"; exit 1; }
done
exec /bin/rm "$@"
)sh";

TEST_F(ScriptSiteTest, ACleanupThatIsKilledLeavesNoHalfOfAVersion) {
    program("mkdir -p \"$out\" && : >\"$out/config.json\" && : >\"$out/model.safetensors\"");
    ASSERT_TRUE(site().stage({{"v"}, "job1", "url", "token"}).ok());
    const auto fakes = directory_.path() / "fakes";
    std::filesystem::create_directories(fakes);
    ASSERT_TRUE(write_file_atomic(fakes / "rm", kKilledInTheMiddle, 0755).ok());
    const std::string path = ::getenv("PATH");
    ::setenv("PATH", (fakes.string() + ":" + path).c_str(), 1);
    const Status killed = site().clean("job1", {});
    ::setenv("PATH", path.c_str(), 1);
    EXPECT_FALSE(killed.ok());
    ASSERT_TRUE(site().stage({{"v"}, "job2", "url", "token"}).ok());
    EXPECT_TRUE(exists("models/v/config.json") && exists("models/v/model.safetensors"));
    ASSERT_TRUE(site().clean("job1", {}).ok());
    ASSERT_TRUE(site().clean("job2", {}).ok());
    for (const auto& left : std::filesystem::directory_iterator(directory_.path() / "work/models"))
        EXPECT_EQ(left.path().filename(), "v.lock") << "only the lock stays";
}

TEST_F(ScriptSiteTest, OnlyTheProgramItselfCanCallItsInputWrong) {
    program("echo 'no such version' >&2; exit 2");
    const Status wrong = site().stage({{"v"}, "job", "url", "token"});
    EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(wrong.error().message.find("no such version"), std::string::npos);
    EXPECT_TRUE(is_refusal(wrong.error()));
    program("exit 66");
    const Status absent = site().stage({{"v"}, "job", "url", "token"});
    EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
    EXPECT_NE(absent.error().field, "") << "the program's own word";
    program("exit 1");
    EXPECT_EQ(site().stage({{"v"}, "job", "url", "token"}).error().code, ErrorCode::kInternal);
    ASSERT_TRUE(write_file_atomic(directory_.path() / "work/models/v.pins/job", "").ok());
    std::filesystem::remove_all(directory_.path() / "work/models");
    ASSERT_TRUE(write_file_atomic(directory_.path() / "work/models", "a file in the way").ok());
    EXPECT_EQ(site().stage({{"v"}, "job", "url", "token"}).error().code, ErrorCode::kInternal);
}

TEST_F(ScriptSiteTest, AProgramThatIsNotThereIsNamedWithItsPlaceAndTheCheckThatLooksForIt) {
    const auto attempt = directory_.path() / "work/tasks/t/1";
    std::filesystem::create_directories(attempt);
    const auto expect_named = [&](const Status& status, const std::string& program) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kInternal) << "it can be brought there while a job waits";
        const std::string& text = status.error().message;
        for (const std::string& named : {program + " in " + directory_.path().string(), std::string("leonardo"),
                                         std::string("atoll facility check")})
            EXPECT_NE(text.find(named), std::string::npos) << text;
    };
    expect_named(site().stage({{"v"}, "job", "url", "token"}), "atoll");
    const auto pushed = site().push({attempt.string(), "m", "url", "token", json::Json::object()});
    expect_named(pushed.ok() ? Status() : Status(pushed.error()), "atoll");
    program("mkdir -p \"$out\"");
    std::filesystem::remove(directory_.path() / "atoll-trainer");
    expect_named(site().stage({{"v"}, "job", "url", "token"}), "atoll-trainer");
    EXPECT_FALSE(exists("models")) << "nothing is brought to a site that cannot use it";
}

TEST_F(ScriptSiteTest, TheSitesProgramsHaveItsEnvironmentAlsoInTransfers) {
    const std::filesystem::path attempt = directory_.path() / "work/tasks/t/1";
    std::filesystem::create_directories(attempt);
    const std::string seen = (directory_.path() / "seen").string();
    program("printf '%s=%s\\n' \"$1\" \"$ATOLL_CLIENT_KEY\" >>" + seen);
    const std::string key = "/keys/it's $HOME.pem";
    const auto here = [&] { return site({{"ATOLL_CLIENT_KEY", key}}); };
    EXPECT_TRUE(here().stage({{"v"}, "job", "url", "token"}).ok());
    (void)here().push({attempt.string(), "m", "url", "token", json::Json::object()});
    EXPECT_TRUE(here().check("url").ok());
    EXPECT_EQ(read_file(seen).value(), "stage=" + key + "\npush=" + key + "\nping=" + key + "\n");
}

TEST_F(ScriptSiteTest, AStoreThatIsAwayIsNoRefusal) {
    std::filesystem::create_directories(directory_.path() / "work/tasks/t/1");
    program("echo 'try again later' >&2; exit 75");
    const Status staged = site().stage({{"v"}, "job", "url", "token"});
    EXPECT_EQ(staged.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(staged.error().message.find("try again later"), std::string::npos) << staged.error().message;
    const auto pushed =
        site().push({(directory_.path() / "work/tasks/t/1").string(), "m", "url", "token", json::Json::object()});
    EXPECT_EQ(pushed.error().code, ErrorCode::kUnavailable);
}

TEST_F(ScriptSiteTest, AnUpdatesDigestIsASha256OrNone) {
    std::filesystem::create_directories(directory_.path() / "work/tasks/t/1");
    const auto push = [&] {
        return site().push(
            {(directory_.path() / "work/tasks/t/1").string(), "m", "url", "token", json::Json::object()});
    };
    const std::string digest(64, 'a');
    program("echo '{\"digest\":\"" + digest + "\"}'");
    EXPECT_EQ(push()->digest, digest);
    for (const auto& wrong : {std::string("latest"), std::string("../../x"), std::string(64, 'A')}) {
        program("echo '{\"digest\":\"" + wrong + "\"}'");
        EXPECT_EQ(push().error().code, ErrorCode::kInternal) << wrong;
    }
}

TEST_F(ScriptSiteTest, OnlyAProgramsWordOrAMissingDirectoryRefusesAnUpdate) {
    const auto attempt = directory_.path() / "work/tasks/t/1";
    const auto push = [&] { return site().push({attempt.string(), "m", "url", "token", json::Json::object()}); };
    program("exit 0");
    EXPECT_EQ(push().error().code, ErrorCode::kUnavailable) << "the whole file system may be away";
    std::filesystem::create_directories(attempt.parent_path());
    const auto gone = push();
    ASSERT_TRUE(gone.ok()) << gone.error().message;
    EXPECT_TRUE(gone->is_refused);
    std::filesystem::create_directories(attempt);
    program(
        "echo '{\"refused\":true,\"error\":{\"code\":\"conflict\",\"detail\":\"no\",\"field\":\"manifest\"}}'; exit 1");
    const auto refused = push();
    ASSERT_TRUE(refused.ok() && refused->error) << refused.error().message;
    EXPECT_TRUE(refused->is_refused);
    EXPECT_EQ(describe(*refused->error), "manifest: no");
    program(
        "echo '{\"refused\":false,\"error\":{\"code\":\"internal\",\"detail\":\"broken\",\"field\":\"\"}}'; exit 1");
    EXPECT_FALSE(push()->is_refused);
    for (const char* trouble : {"echo 'the disk cannot be read' >&2; exit 2", "kill -9 $$", "exit 1"}) {
        program(trouble);
        EXPECT_FALSE(push().ok()) << trouble;
    }
}

TEST_F(ScriptSiteTest, ALookGivesWholeLinesOnlyAndGoesOnFromItsOffset) {
    const auto attempt = directory_.path() / "work/tasks/t/1";
    std::filesystem::create_directories(attempt);
    ASSERT_TRUE(write_file_atomic(attempt / "stdout.jsonl", "{\"step\":1}\nnot json\n{\"step\":2").ok());
    const auto first = look(site(), attempt.string(), 0);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(first->lines, (std::vector<std::string>{"{\"step\":1}", "not json"}));
    EXPECT_FALSE(first->started || first->exit_code);
    ASSERT_TRUE(write_file_atomic(attempt / "stdout.jsonl", "{\"step\":1}\nnot json\n{\"step\":2}\n").ok());
    ASSERT_TRUE(write_file_atomic(attempt / "end.json", "{\"exit_code\":3}\n").ok());
    const auto second = look(site(), attempt.string(), first->log_offset);
    EXPECT_EQ(second->lines, std::vector<std::string>{"{\"step\":2}"});
    EXPECT_EQ(second->exit_code, 3);
    EXPECT_TRUE(look(site(), site().task_directory("nobody", 1), 0)->lines.empty());
}

TEST_F(ScriptSiteTest, OneLookSeesManyAttempts) {
    const auto tasks = directory_.path() / "work/tasks";
    std::vector<LookOrder> orders;
    for (const std::string name : {"a", "b", "c"}) {
        std::filesystem::create_directories(tasks / name / "1");
        ASSERT_TRUE(write_file_atomic(tasks / name / "1/stdout.jsonl", "of " + name + "\nnot whole").ok());
        orders.push_back({(tasks / name / "1").string(), 0});
    }
    ASSERT_TRUE(write_file_atomic(tasks / "b/1/end.json", "{\"exit_code\":3}\n").ok());
    orders.push_back({(tasks / "nobody/1").string(), 0});
    const auto looks = site().look(orders);
    ASSERT_TRUE(looks.ok()) << looks.error().message;
    ASSERT_EQ(looks->size(), 4U);
    EXPECT_EQ(looks->at(0).lines, std::vector<std::string>{"of a"});
    EXPECT_EQ(looks->at(1).exit_code, 3);
    EXPECT_EQ(looks->at(2).lines, std::vector<std::string>{"of c"});
    EXPECT_TRUE(looks->at(3).lines.empty());
}

TEST_F(ScriptSiteTest, OneLookAtManyLongLogsStaysWithinWhatAScriptMayPrint) {
    std::vector<LookOrder> orders;
    const auto log = directory_.path() / "work/tasks/t/1/stdout.jsonl";
    std::filesystem::create_directories(log.parent_path());
    std::string text;
    while (text.size() < (1U << 20)) text += "{\"step\":1}\n";
    ASSERT_TRUE(write_file_atomic(log, text).ok());
    for (std::size_t i = 0; i < kLooksMax; ++i) orders.push_back({log.parent_path().string(), 0});
    const auto looks = site().look(orders);
    ASSERT_TRUE(looks.ok()) << looks.error().message;
    for (const Look& look : *looks) EXPECT_TRUE(!look.lines.empty() && !look.log_is_drained);
}

TEST_F(ScriptSiteTest, AnExitFileThatIsNoneOfOursCountsAsAFailure) {
    const auto attempt = directory_.path() / "work/tasks/t/1";
    std::filesystem::create_directories(attempt);
    const auto exit_code = [&](const std::string& text) {
        EXPECT_TRUE(write_file_atomic(attempt / "end.json", text).ok());
        const auto found = look(site(), attempt.string(), 0);
        EXPECT_TRUE(found.ok()) << found.error().message;
        return found.ok() ? found->exit_code.value_or(-1) : -1;
    };
    EXPECT_EQ(exit_code("{\"exit_code\":255}"), 255);
    EXPECT_EQ(exit_code(std::string(127, ' ') + "\n"), -1) << "it has not ended";
    for (const char* text : {"{\"exit_code\":256}", "{\"exit_code\":-1}", "{\"exit_code\":4294967296}",
                             "{\"exit_code\":18446744073709551615}", "{\"exit_code\":\"0\"}", "[0]", "\xff"})
        EXPECT_EQ(exit_code(text), 1) << text;
    EXPECT_EQ(exit_code("{\"exit_code\":0}" + std::string(4096, ' ')), 1);
    EXPECT_EQ(exit_code("{\"exit_code\":0}" + std::string(6 << 20, ' ')), 1) << "more than a script may print";
}

TEST_F(ScriptSiteTest, AProgramThatSaysMuchWithTheStatusOfAMissingOneMakesNoLongMessage) {
    program("head -c 1000000 /dev/zero | tr '\\0' x; exit 72");
    const auto attempt = directory_.path() / "work/tasks/t/1";
    std::filesystem::create_directories(attempt);
    const auto pushed = site().push({attempt.string(), "m", "url", "token", json::Json::object()});
    ASSERT_FALSE(pushed.ok());
    EXPECT_EQ(pushed.error().code, ErrorCode::kInternal);
    EXPECT_LT(pushed.error().message.size(), 1000U);
}

TEST_F(ScriptSiteTest, AFileIsReadAsFarAsItIsAsLargeAsItMayBe) {
    const std::string file = (directory_.path() / "data.json").string();
    EXPECT_EQ(site().read_file(file, 4).error().code, ErrorCode::kNotFound);
    ASSERT_TRUE(write_file_atomic(file, "1234").ok());
    EXPECT_EQ(site().read_file(file, 4).value(), "1234");
    EXPECT_EQ(site().read_file(file, 3).error().code, ErrorCode::kTooLarge);
    ASSERT_TRUE(write_file_atomic(file, std::string(6 << 20, ' ')).ok());
    EXPECT_EQ(site().read_file(file, 4).error().code, ErrorCode::kTooLarge) << "more than a script may print";
}

}  // namespace
}  // namespace atl::dispatch
