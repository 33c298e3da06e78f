#include "services/dispatch/sites/script_site.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <sstream>
#include <thread>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "tests/integration/test_stack.h"

namespace atl::dispatch {
namespace {

class ScriptSiteTest : public testing::Test {
  protected:
    ScriptSite site(std::map<std::string, std::string> environment = {}) {
        Facility facility;
        facility.environment = std::move(environment);
        facility.name = "leonardo";
        facility.batch.kind = BatchKind::kLocal;
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
    static StageOrder order(const std::string& job, std::vector<std::string> digests = {"v"}) {
        return {std::move(digests), job, "atoll-of-" + job + "-1", "url", "token"};
    }
    // What a verb comes to in the end.
    static bool goes_on(const StageAnswer& answer) { return answer.moving.has_value(); }
    static bool goes_on(const std::optional<Moving>& moving) { return moving.has_value(); }
    static Status done(const auto& verb) {
        for (;;) {
            const auto moving = verb();
            if (!moving.ok()) return moving.error();
            if (!goes_on(*moving)) return {};
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    Status stage(const std::string& job) {
        return done([&] { return site().stage(order(job)); });
    }
    Status clean(const std::string& job, const std::vector<std::string>& tasks = {}) {
        return done([&] { return site().clean(job, tasks); });
    }
    Result<PushAnswer> push(const std::filesystem::path& attempt) {
        for (;;) {
            auto answer = site().push({attempt.string(), "m", "url", "token", json::Json::object()});
            if (!answer.ok() || !answer->moving) return answer;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
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
    for (const char* job : {"job1", "job2"}) ASSERT_TRUE(stage(job).ok());
    std::filesystem::create_directories(directory_.path() / "work/kept/job1/round1.state");
    ASSERT_TRUE(clean("job1").ok());
    EXPECT_FALSE(exists("kept/job1")) << "what it kept from round to round";
    EXPECT_TRUE(exists("models/v"));
    ASSERT_TRUE(clean("job2").ok());
    EXPECT_FALSE(exists("models/v"));
    ASSERT_TRUE(clean("job2").ok()) << "again, with nothing left";
}

TEST_F(ScriptSiteTest, WhatAStagingDidNotBringToItsEndGoesWithTheLastPin) {
    program("mkdir -p \"$(dirname \"$out\")/.$(basename \"$out\").1234.partial\"; exit 75");
    for (const char* job : {"job1", "job2"}) ASSERT_FALSE(stage(job).ok());
    ASSERT_TRUE(clean("job1").ok());
    EXPECT_TRUE(exists("models/.v.1234.partial")) << "the other goes on from it";
    ASSERT_TRUE(clean("job2").ok());
    EXPECT_FALSE(exists("models/.v.1234.partial"));
}

TEST_F(ScriptSiteTest, CleaningOneJobNeverPullsAVersionFromUnderAnother) {
    program("mkdir -p \"$out\"");
    std::filesystem::create_directories(directory_.path() / "work");
    std::jthread cleaner([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            const Status cleaned = clean("other");
            EXPECT_TRUE(cleaned.ok()) << cleaned.error().message;
        }
    });
    std::jthread other([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            const Status staged = stage("other");  // which its own cleaning may end
            EXPECT_TRUE(staged.ok() || staged.error().code == ErrorCode::kUnavailable) << staged.error().message;
        }
    });
    for (int i = 0; i < 15; ++i) {
        const Status staged = stage("mine");
        ASSERT_TRUE(staged.ok()) << staged.error().message;
        ASSERT_TRUE(exists("models/v"));
        const Status cleaned = clean("mine");
        ASSERT_TRUE(cleaned.ok()) << cleaned.error().message;
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
    ASSERT_TRUE(stage("job").ok());
    std::filesystem::rename(directory_.path() / "work", directory_.path() / "away");
    const Status cleaned = clean("job", {"task"});
    ASSERT_FALSE(cleaned.ok());
    EXPECT_EQ(cleaned.error().code, ErrorCode::kUnavailable);
    std::filesystem::rename(directory_.path() / "away", directory_.path() / "work");
    ASSERT_TRUE(clean("job", {"task"}).ok());
    EXPECT_FALSE(exists("models/v"));
}

TEST_F(ScriptSiteTest, NothingIsStagedWhereAFileSystemIsAway) {
    program("mkdir -p \"$out\"");
    Facility facility;
    facility.batch.kind = BatchKind::kLocal;
    facility.work_dir = (directory_.path() / "away/work").string();
    const auto staged = ScriptSite(facility, make_local_transport(), directory_.path().string()).stage(order("job"));
    ASSERT_FALSE(staged.ok());
    EXPECT_EQ(staged.error().code, ErrorCode::kUnavailable);
    EXPECT_FALSE(std::filesystem::exists(directory_.path() / "away"));
}

TEST_F(ScriptSiteTest, EveryVerbNamesAWorkDirectoryThatIsAwayAsTroubleOfTheWholeFacility) {
    program("exit 0");
    Facility facility;
    facility.name = "leonardo";
    facility.batch.kind = BatchKind::kLocal;
    facility.work_dir = (directory_.path() / "away/work").string();
    ScriptSite away(facility, make_local_transport(), directory_.path().string());
    const std::string attempt = away.task_directory("t", 1);
    const BatchJobRef job{"atoll-t-1", attempt};
    const auto status = [](const auto& result) { return result.ok() ? Status() : Status(result.error()); };
    for (const Status& said :
         {status(away.stage({{"v"}, "job", "atoll-t-1", "url", "token"})), status(away.submit_script(job, "exit 0\n")),
          status(away.ask_batch({job})), away.cancel(job), status(away.look({{attempt, 0}})),
          status(away.push({attempt, "m", "url", "token", json::Json::object()})),
          status(away.tail(attempt + "/stderr.log", 100)), status(away.read_file(attempt + "/train.data.json", 100)),
          away.publish(attempt + "/out", facility.work_dir + "/datasets/d/1"), status(away.clean("job", {"t"}))}) {
        ASSERT_FALSE(said.ok());
        EXPECT_TRUE(is_of_facility(said.error())) << describe(said.error());
        EXPECT_TRUE(describe(said.error())
                        .starts_with("the work directory " + facility.work_dir +
                                     " of leonardo is not there: is its file system mounted?"))
            << describe(said.error());
    }
    EXPECT_FALSE(std::filesystem::exists(directory_.path() / "away")) << "nothing is made where it was";
}

TEST_F(ScriptSiteTest, AFullQuotaOrAStoreThatIsAwayIsTroubleOfTheTaskAlone) {
    const auto staged = [&] { return site().stage({{"v"}, "job", "atoll-t-1", "url", "token"}).error(); };
    program("echo 'write: Disk quota exceeded' >&2; exit 1");
    EXPECT_EQ(staged().code, ErrorCode::kUnavailable);
    EXPECT_EQ(describe(staged()), "staging models: no space or quota is left in " + site().facility().work_dir +
                                      " (write: Disk quota exceeded)");
    EXPECT_FALSE(is_of_facility(staged()));
    program("echo 'the store does not answer' >&2; exit 75");
    EXPECT_EQ(describe(staged()), "staging models: the store does not answer") << "no number that says nothing";
    EXPECT_FALSE(is_of_facility(staged()));
}

TEST_F(ScriptSiteTest, WorkThatEndsWithoutAWordTellsWhetherItsDiskIsFull) {
    program("kill -9 0");
    const Status killed = stage("job");
    ASSERT_FALSE(killed.ok());
    EXPECT_NE(killed.error().message.find("was it killed? "), std::string::npos) << killed.error().message;
    EXPECT_NE(killed.error().message.find(" MiB are free in " + site().facility().work_dir), std::string::npos);
    const std::string disk = site().facility().work_dir;
    if (::geteuid() != 0 || run_command({"mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk})->exit_code != 0)
        GTEST_SKIP() << "only root can mount a small file system";
    program("cat /dev/zero >full 2>/dev/null; kill -9 0");
    const Status full = stage("job");
    EXPECT_EQ(run_command({"umount", "--lazy", disk})->exit_code, 0);
    ASSERT_FALSE(full.ok());
    EXPECT_NE(full.error().message.find("no space or quota is left in " + disk), std::string::npos)
        << full.error().message;
}

// `rm` of the site's PATH: of a directory tree it takes one file, then kills the shell that called it.
constexpr const char* kKilledInTheMiddle = R"sh(#!/bin/sh
for word; do
    [ ! -d "$word" ] || { /bin/rm -f "$word/model.safetensors"; kill -9 "$PPID"; exit 1; }
done
exec /bin/rm "$@"
)sh";

TEST_F(ScriptSiteTest, ACleanupThatIsKilledLeavesNoHalfOfAVersion) {
    program(
        "mkdir \"$out.new\" && : >\"$out.new/config.json\" && : >\"$out.new/model.safetensors\" && "
        "mv \"$out.new\" \"$out\"");
    ASSERT_TRUE(stage("job1").ok());
    const auto fakes = directory_.path() / "fakes";
    std::filesystem::create_directories(fakes);
    ASSERT_TRUE(write_file_atomic(fakes / "rm", kKilledInTheMiddle, 0755).ok());
    const std::string path = ::getenv("PATH");
    ::setenv("PATH", (fakes.string() + ":" + path).c_str(), 1);
    const Status killed = clean("job1");
    ::setenv("PATH", path.c_str(), 1);
    EXPECT_FALSE(killed.ok());
    ASSERT_TRUE(stage("job2").ok());
    EXPECT_TRUE(exists("models/v/config.json") && exists("models/v/model.safetensors"));
    ASSERT_TRUE(clean("job1").ok());
    ASSERT_TRUE(clean("job2").ok());
    for (const auto& left : std::filesystem::directory_iterator(directory_.path() / "work/models"))
        ADD_FAILURE() << left.path();
}

TEST_F(ScriptSiteTest, OnlyTheProgramItselfCanCallItsInputWrong) {
    program("echo 'no such version' >&2; exit 2");
    const Status wrong = stage("job");
    EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(wrong.error().message.find("no such version"), std::string::npos);
    EXPECT_TRUE(is_refusal(wrong.error()));
    program("exit 66");
    const Status absent = stage("job");
    EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
    EXPECT_TRUE(is_answer(absent.error())) << "the program says so itself";
    program("exit 1");
    EXPECT_EQ(stage("job").error().code, ErrorCode::kInternal);
    ASSERT_TRUE(write_file_atomic(directory_.path() / "work/models/v.pins/job", "").ok());
    std::filesystem::remove_all(directory_.path() / "work/models");
    ASSERT_TRUE(write_file_atomic(directory_.path() / "work/models", "a file in the way").ok());
    EXPECT_EQ(stage("job").error().code, ErrorCode::kInternal);
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
    expect_named(stage("job"), "atoll");
    const auto pushed = push(attempt);
    expect_named(pushed.ok() ? Status() : Status(pushed.error()), "atoll");
    program("mkdir -p \"$out\"");
    std::filesystem::remove(directory_.path() / "atoll-trainer");
    expect_named(stage("job"), "atoll-trainer");
    EXPECT_FALSE(exists("models")) << "nothing is brought to a site that cannot use it";
}

TEST_F(ScriptSiteTest, TheSitesProgramsHaveItsEnvironmentAlsoInTransfers) {
    const std::filesystem::path attempt = directory_.path() / "work/tasks/t/1";
    std::filesystem::create_directories(attempt);
    const std::string seen = (directory_.path() / "seen").string();
    program("printf '%s=%s\\n' \"$1\" \"$ATOLL_CLIENT_KEY\" >>" + seen + "; mkdir -p \"${out:-/}\"");
    const std::string key = "/keys/it's $HOME.pem";
    const auto here = [&] { return site({{"ATOLL_CLIENT_KEY", key}}); };
    EXPECT_TRUE(done([&] { return here().stage(order("job")); }).ok());
    const PushOrder update{attempt.string(), "m", "url", "token", json::Json::object()};
    for (auto pushed = here().push(update); pushed.ok() && pushed->moving;) pushed = here().push(update);
    (void)here().check({"url"});
    EXPECT_EQ(read_file(seen).value(),
              "stage=" + key + "\npush=" + key + "\n--version=" + key + "\nping=" + key + "\n");
}

TEST_F(ScriptSiteTest, AStoreThatIsAwayIsNoRefusal) {
    std::filesystem::create_directories(directory_.path() / "work/tasks/t/1");
    program("echo 'try again later' >&2; exit 75");
    const Status staged = stage("job");
    EXPECT_EQ(staged.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(staged.error().message.find("try again later"), std::string::npos) << staged.error().message;
    const auto pushed = push(directory_.path() / "work/tasks/t/1");
    EXPECT_EQ(pushed.error().code, ErrorCode::kUnavailable);
}

TEST_F(ScriptSiteTest, AnUpdatesDigestIsASha256OrNone) {
    std::filesystem::create_directories(directory_.path() / "work/tasks/t/1");
    const auto handed_in = [&] { return push(directory_.path() / "work/tasks/t/1"); };
    const std::string digest(64, 'a');
    program("echo '{\"digest\":\"" + digest + "\"}'");
    EXPECT_EQ(handed_in()->digest, digest);
    for (const auto& wrong : {std::string("latest"), std::string("../../x"), std::string(64, 'A')}) {
        program("echo '{\"digest\":\"" + wrong + "\"}'");
        EXPECT_EQ(handed_in().error().code, ErrorCode::kInternal) << wrong;
    }
}

TEST_F(ScriptSiteTest, OnlyAProgramsWordOrAMissingDirectoryRefusesAnUpdate) {
    const auto attempt = directory_.path() / "work/tasks/t/1";
    const auto handed_in = [&] { return push(attempt); };
    program("exit 0");
    EXPECT_EQ(handed_in().error().code, ErrorCode::kUnavailable) << "the whole file system may be away";
    std::filesystem::create_directories(attempt.parent_path());
    const auto gone = handed_in();
    ASSERT_TRUE(gone.ok()) << gone.error().message;
    EXPECT_TRUE(gone->is_refused);
    std::filesystem::create_directories(attempt);
    program(
        "echo '{\"refused\":true,\"error\":{\"code\":\"conflict\",\"detail\":\"no\",\"field\":\"manifest\"}}'; exit 1");
    const auto refused = handed_in();
    ASSERT_TRUE(refused.ok() && refused->error) << refused.error().message;
    EXPECT_TRUE(refused->is_refused);
    EXPECT_EQ(describe(*refused->error), "manifest: no");
    program(
        "echo '{\"refused\":false,\"error\":{\"code\":\"internal\",\"detail\":\"broken\",\"field\":\"\"}}'; exit 1");
    EXPECT_FALSE(handed_in()->is_refused);
    for (const char* trouble : {"echo 'the disk cannot be read' >&2; exit 2", "kill -9 $$", "exit 1"}) {
        program(trouble);
        EXPECT_FALSE(handed_in().ok()) << trouble;
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
    const auto pushed = push(attempt);
    ASSERT_FALSE(pushed.ok());
    EXPECT_EQ(pushed.error().code, ErrorCode::kInternal);
    EXPECT_LT(pushed.error().message.size(), 1000U);
}

TEST_F(ScriptSiteTest, AFileIsReadAsFarAsItIsAsLargeAsItMayBe) {
    const std::string file = site().task_directory("t", 1) + "/data.json";
    std::filesystem::create_directories(site().task_directory("t", 1));
    EXPECT_EQ(site().read_file(file, 4).error().code, ErrorCode::kNotFound);
    ASSERT_TRUE(write_file_atomic(file, "1234").ok());
    EXPECT_EQ(site().read_file(file, 4).value(), "1234");
    EXPECT_EQ(site().read_file(file, 3).error().code, ErrorCode::kTooLarge);
    ASSERT_TRUE(write_file_atomic(file, std::string(6 << 20, ' ')).ok());
    EXPECT_EQ(site().read_file(file, 4).error().code, ErrorCode::kTooLarge) << "more than a script may print";
}

// Of a site whose `atoll` notes that it was started and waits for a file "go".
class MovingTest : public ScriptSiteTest {
  protected:
    void SetUp() override {
        program("echo start >>" + file("starts") + "\nIFS= read -r token\n" +
                "for word; do [ \"$last\" != --progress ] || echo '7 42' >\"$word\"; last=$word; done\n" +
                "while [ ! -e " + file("go") + " ]; do sleep 0.02; done\n[ ! -e " + file("fails") + " ] || exit 66\n" +
                "if [ $1 = stage ]; then mkdir -p \"$out\"; else echo '{\"digest\":\"" + std::string(64, 'a') +
                "\"}'; fi");
    }
    void TearDown() override {
        for (const std::string job : {"job1", "job2"}) EXPECT_TRUE(site().stop_staging(order(job)).ok());
    }
    std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
    void make(const std::string& name) { ASSERT_TRUE(write_file_atomic(file(name), "").ok()); }
    static std::string text_of(const std::filesystem::path& path) {  // empty where there is none
        const auto text = read_file(path);
        return text.ok() ? *text : "";
    }
    int starts() const {
        const std::string text = text_of(file("starts"));
        return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    }
    bool is_moving(const std::string& job) {
        const auto moving = site().stage(order(job));
        EXPECT_TRUE(moving.ok()) << moving.error().message;
        return moving.ok() && moving->moving.has_value();
    }
    std::string claim() const { return file("work/models/v.moving"); }
    pid_t mover() const {
        std::string machine, boot;
        pid_t process = 0;
        const auto is_owned = [&] {
            std::istringstream owner(text_of(claim() + "/owner"));
            return static_cast<bool>(owner >> machine >> boot >> process);
        };
        EXPECT_TRUE(eventually(is_owned));
        return process;
    }
};

TEST_F(MovingTest, WhatTakesLongIsNotWaitedForButLookedAt) {
    ASSERT_TRUE(is_moving("job1"));
    EXPECT_TRUE(eventually([&] {
        const auto moving = site().stage(order("job1"));
        return moving.ok() && moving->moving && moving->moving->bytes_done == 7 && moving->moving->bytes_total == 42;
    }));
    make("go");
    EXPECT_TRUE(stage("job1").ok());
    EXPECT_TRUE(exists("models/v"));
    EXPECT_EQ(starts(), 1);
    EXPECT_FALSE(std::filesystem::exists(claim()));
    EXPECT_EQ(site().stage(order("job1")).value().bytes, 42) << "also when an answer was lost";
    EXPECT_EQ(site().stage(order("job2")).value().bytes, 0) << "nothing was brought for it";
}

TEST_F(MovingTest, APushIsLookedAtAndItsAnswerIsTold) {
    const auto attempt = directory_.path() / "work/tasks/t/1";
    std::filesystem::create_directories(attempt);
    const PushOrder order{attempt.string(), "m", "url", "token", json::Json::object()};
    EXPECT_TRUE(eventually([&] {
        const auto moving = site().push(order);
        return moving.ok() && moving->moving && moving->moving->bytes_done == 7;
    }));
    make("go");
    EXPECT_EQ(push(attempt)->digest, std::string(64, 'a'));
    EXPECT_EQ(starts(), 1);
}

TEST_F(MovingTest, WhatWasKilledIsBegunAnew) {
    ASSERT_TRUE(is_moving("job1"));
    ASSERT_EQ(::kill(-mover(), SIGKILL), 0);
    ASSERT_TRUE(is_moving("job1"));
    EXPECT_TRUE(eventually([&] { return starts() == 2; }));
    make("go");
    EXPECT_TRUE(stage("job1").ok());
}

TEST_F(MovingTest, WhereOnlyTheShellWasKilledItsProgramEndsAsWell) {
    ASSERT_TRUE(is_moving("job1"));
    const pid_t killed = mover();
    ASSERT_EQ(::kill(killed, SIGKILL), 0);
    EXPECT_TRUE(eventually([&] { return ::kill(-killed, 0) != 0; }));
}

TEST_F(MovingTest, OfAnotherMachineTheHeartbeatTells) {
    std::filesystem::create_directories(claim());
    ASSERT_TRUE(write_file_atomic(claim() + "/owner", "elsewhere boot 1 1\n").ok());
    ASSERT_TRUE(write_file_atomic(claim() + "/for", "atoll-of-job1-1\n").ok());
    ASSERT_TRUE(write_file_atomic(claim() + "/alive", "").ok());
    ASSERT_TRUE(is_moving("job1"));
    EXPECT_EQ(starts(), 0) << "it goes on there";
    std::filesystem::last_write_time(claim() + "/alive",
                                     std::filesystem::file_time_type::clock::now() - std::chrono::minutes(3));
    ASSERT_TRUE(is_moving("job1"));
    EXPECT_TRUE(eventually([&] { return starts() == 1; })) << "that machine went down";
    make("go");
    EXPECT_TRUE(stage("job1").ok());
}

TEST_F(MovingTest, WhoNeedsWhatIsOnItsWayWaitsForIt) {
    ASSERT_TRUE(is_moving("job1"));
    ASSERT_TRUE(is_moving("job2"));
    EXPECT_TRUE(eventually([&] { return starts() == 1; }));
    make("go");
    EXPECT_TRUE(stage("job2").ok());
    EXPECT_TRUE(stage("job1").ok());
    EXPECT_EQ(starts(), 1);
}

TEST_F(MovingTest, AFailureIsToldToWhomItWasBegunFor) {
    ASSERT_TRUE(is_moving("job1"));
    ASSERT_TRUE(is_moving("job2"));
    make("fails");
    make("go");
    ASSERT_EQ(stage("job1").error().code, ErrorCode::kNotFound);
    std::filesystem::remove(file("go"));
    ASSERT_TRUE(is_moving("job1"));
    make("go");
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(claim() + "/status"); }));
    std::filesystem::remove(file("fails"));
    const Status other = stage("job2");
    EXPECT_TRUE(other.ok()) << other.error().message;  // it has a token of its own
    EXPECT_EQ(starts(), 3);
}

TEST_F(MovingTest, ATokenIsInNoFileAndNoCommandLine) {
    StageOrder secret = order("job1");
    secret.token = "secret-" + std::to_string(::getpid()) + "-token";
    ASSERT_TRUE(site().stage(secret)->moving.has_value());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path()))
        EXPECT_EQ(text_of(entry.path()).find(secret.token), std::string::npos) << entry.path();
    for (const auto& process : std::filesystem::directory_iterator("/proc"))
        for (const char* what : {"cmdline", "environ"})
            EXPECT_EQ(text_of(process.path() / what).find(secret.token), std::string::npos) << process.path();
}

TEST_F(MovingTest, StoppingEndsWhatWasBegunForThatAttemptAlone) {
    ASSERT_TRUE(is_moving("job1"));
    const pid_t process = mover();
    ASSERT_TRUE(site().stop_staging(order("job2")).ok());
    EXPECT_EQ(::kill(-process, 0), 0);
    ASSERT_TRUE(site().stop_staging(order("job1")).ok());
    EXPECT_TRUE(eventually([&] { return ::kill(-process, 0) != 0; }));
    EXPECT_FALSE(std::filesystem::exists(claim()));
}

TEST_F(MovingTest, CancellingEndsThePush) {
    const BatchJobRef job{"atoll-t-1", file("work/tasks/t/1")};
    std::filesystem::create_directories(job.directory);
    const auto moving = site().push({job.directory, "m", "url", "token", json::Json::object()});
    ASSERT_TRUE(moving.ok() && moving->moving);
    ASSERT_TRUE(site().cancel(job).ok());
    EXPECT_FALSE(std::filesystem::exists(job.directory + "/push.moving"));
}

TEST_F(MovingTest, CleaningUpEndsWhatNobodyNeedsAnyMore) {
    ASSERT_TRUE(is_moving("job1"));
    ASSERT_TRUE(is_moving("job2"));
    ASSERT_TRUE(clean("job1").ok());
    EXPECT_TRUE(std::filesystem::exists(claim()));
    ASSERT_TRUE(clean("job2").ok());
    EXPECT_TRUE(std::filesystem::is_empty(file("work/models")));
}

TEST_F(ScriptSiteTest, ALockThatAKilledProcessHasLeftHoldsNobodyUp) {
    program("mkdir -p \"$out\"");
    const auto lock = directory_.path() / "work/models/v.pinning";
    std::filesystem::create_directories(lock);
    std::array<char, 256> machine{};
    ASSERT_EQ(::gethostname(machine.data(), machine.size() - 1), 0);
    ASSERT_TRUE(write_file_atomic(lock / (std::string(machine.data()) + " an-earlier-start 1 1"), "").ok());
    EXPECT_TRUE(stage("job").ok());
    EXPECT_FALSE(std::filesystem::exists(lock));
}

}  // namespace
}  // namespace atl::dispatch
