#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/base/text.h"
#include "shared/http/testing/test_server.h"

namespace atl::cli {
namespace {

using http::Access;
using http::Method;
using http::Request;
using http::Response;
using json::Json;

const Json kRecord = {{"name", "leonardo"},
                      {"transport", {{"kind", "ssh"}, {"host", "login"}}},
                      {"batch",
                       {{"kind", "slurm"},
                        {"queues", {{"gpu", {{"time_max", "24:00:00"}, {"gpu_request", "--gres=gpu:{gpus}"}}}}},
                        {"template", "#!/bin/bash -l\nexport SCRATCH=${TMPDIR}\n\n{{ command }}\n"}}},
                      {"work_dir", "/scratch"},
                      {"image", {{"path", "/i.sif"}, {"binds", {"/data:/data:ro"}}, {"sha256", "0123"}}},
                      {"environment", {{"OMP_NUM_THREADS", "4"}, {"NOTE", "it's: #1"}}},
                      {"evaluation", {{"time", "1:00:00"}}},
                      {"launcher", ""},
                      {"logs", {{"return", "errors"}, {"bytes_max", 65536}}},
                      {"owner", "ada"},
                      {"allow", {"*"}}};

const Json kChecks = {
    {{"name", "launcher"},
     {"state", "fail"},
     {"seen", "--mpi=pmix_v5 is asked for, srun has none, pmi2, pmix_v3, pmix_v4 and nothing else at all"},
     {"mend", "atoll facility set leonardo --launcher 'srun --mpi=pmix_v4 --kill-on-bad-exit=1 --and-so-on'"}},
    {{"name", "compute"},
     {"state", "skipped"},
     {"seen", "not tried"},
     {"mend",
      "free some there: what waits for room goes on by itself; or take another: atoll facility set leonardo "
      "--work-dir DIRECTORY"}}};

// The program itself against a made-up dispatch with one facility.
class FacilityProgramTest : public testing::Test {
  protected:
    CommandResult run(const std::vector<std::string>& arguments) const {
        std::vector<std::string> all = {ATOLL_PROGRAM, "--gateway", server_.url(), "--token-file", token_file_};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return run_command(all).value();
    }
    // The same with what it says on standard error in a file, where the check can see it.
    CommandResult run_heard(const std::vector<std::string>& arguments) const {
        std::vector<std::string> all = {"sh",        "-c",          "exec \"$@\" 2>\"$0\"", said_,      ATOLL_PROGRAM,
                                        "--gateway", server_.url(), "--token-file",         token_file_};
        all.insert(all.end(), arguments.begin(), arguments.end());
        CommandResult result = run_command(all).value();
        result.err = read_file(said_).value();
        return result;
    }
    void wait_until_it_says_something() const {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
        while (read_file(said_)->empty() && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    void add_check_routes(http::Server& server, const Access& anyone) {
        server.route(Method::kPost, "/dispatch/v1/facilities/:name/check", anyone, [this](const Request&) {
            if (takes_long_) wait_until_it_says_something();
            return Response::json(
                200, {{"ok", is_sound_.load()}, {"host", "login07"}, {"seconds", 1.5}, {"checks", kChecks}});
        });
        const std::string job = "/dispatch/v1/facilities/:name/check-jobs/:id";
        server.route(Method::kPut, job, anyone, [this](const Request& request) {
            set(posted_, request.json().value());
            const std::lock_guard lock(mutex_);
            if (refusal_) return Response::problem(*refusal_);
            return Response::json(200, {{"id", request.param("id")}, {"batch_id", "17"}});
        });
        server.route(Method::kGet, job, anyone, [this](const Request& request) {
            const Json rank = {
                {"name", "rank 0"}, {"state", has_mute_row_ ? "fail" : "ok"}, {"seen", "n1"}, {"mend", ""}};
            return Response::json(200, {{"id", request.param("id")},
                                        {"state", "ended"},
                                        {"reason", ""},
                                        {"ok", true},
                                        {"checks", Json::array({rank})}});
        });
        server.route(Method::kDelete, job, anyone, [this](const Request&) {
            ++jobs_deleted_;
            return Response::empty(204);
        });
    }
    void add_routes(http::Server& server) {
        const Access anyone = Access::roles({auth::Role::kAdmin});
        server.route(Method::kGet, "/dispatch/v1/facilities/:name", anyone, [](const Request&) {
            Json shown = kRecord;
            shown.update({{"devices", {"cpu"}}, {"limits", nullptr}, {"waiting", nullptr}, {"silent_since", nullptr}});
            shown.update({{"host_key_fingerprints", Json::array()}, {"created_at", "then"}, {"updated_at", "now"}});
            shown["task_waits"] = {{"reason", "sbatch: error: a\nsbatch: error: b"}, {"since", "noon"}, {"others", 2}};
            return Response::json(200, shown).with("ETag", "\"3\"");
        });
        server.route(Method::kPost, "/dispatch/v1/facilities", anyone, [this](const Request& request) {
            set(posted_, request.json().value());
            return Response::json(201, Json::object());
        });
        server.route(Method::kPost, "/dispatch/v1/preparations", anyone,
                     [](const Request&) { return Response::json(201, {{"id", "p3"}, {"state", "pending"}}); });
        server.route(Method::kGet, "/dispatch/v1/preparations/p3", anyone, [this](const Request&) {
            Json now = {{"id", "p3"}, {"state", "running"}, {"step", "running"}};
            if (fails_preparation_)
                now.update({{"state", "failed"},
                            {"error", "leonardo: prepare failed at attempt 1: tokenizer: cannot be read"}});
            else if (++looks_at_preparation_ > 2)
                now.update({{"state", "done"}, {"version", 4}});
            if (looks_at_preparation_ == 2)
                now.update({{"queue_reason", "its batch job has ended (FAILED)"}, {"queue_reason_since", "noon"}});
            return Response::json(200, now);
        });
        add_check_routes(server, anyone);
        const auto list = [](const Json& item) {
            return Response::json(200,
                                  {{"items", item.is_null() ? Json::array() : Json::array({item})}, {"next", nullptr}});
        };
        server.route(Method::kGet, "/registry/v1/datasets", anyone,
                     [this, list](const Request&) { return list(has_dataset_ ? Json{{"name", "diaries"}} : Json()); });
        server.route(Method::kGet, "/registry/v1/datasets/:name/versions", anyone, [list](const Request&) {
            return list(
                {{"version", 2},
                 {"tokenizer_sha256", std::string(64, 'f')},
                 {"tokenizer", {{"model", "llama"}, {"version", std::string(64, 'e')}}},
                 {"tokenizer_reader", 2},
                 {"seq_len", 128},
                 {"batching", "padding"},
                 {"train", {{"documents", 90}, {"rows", 90}, {"tokens", 900}}},
                 {"validation", {{"documents", 10}, {"rows", 10}, {"tokens", 60}}},
                 {"statistics", {{"without_end", 12}, {"longer", 3}, {"tokens_truncated", 40}, {"bytes", 5000}}}});
        });
        server.route(Method::kGet, "/registry/v1/datasets/:name", anyone,
                     [](const Request&) { return Response::json(200, {{"name", "diaries"}, {"language", "it"}}); });
        server.route(Method::kGet, "/registry/v1/datasets/:name/versions/:version/copies", anyone,
                     [list](const Request&) { return list({{"facility", "leonardo"}}); });
    }
    void set(Json& kept, const Json& value) {
        const std::lock_guard lock(mutex_);
        kept = value;
    }
    Json posted() {
        const std::lock_guard lock(mutex_);
        return posted_;
    }

    std::mutex mutex_;
    Json posted_;
    std::optional<Error> refusal_;  // of a check's job
    std::atomic<bool> has_mute_row_ = false;
    std::atomic<bool> takes_long_ = false;
    std::atomic<bool> is_sound_ = false;
    std::atomic<bool> has_dataset_ = false;
    std::atomic<int> jobs_deleted_ = 0;
    std::atomic<int> looks_at_preparation_ = 0;
    std::atomic<bool> fails_preparation_ = false;
    TemporaryDirectory directory_;
    std::string said_ = directory_.path() / "said";
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }};
    std::string token_file_ = [this] {
        const auto file = directory_.path() / "token";
        EXPECT_TRUE(write_file_atomic(file, server_.token(auth::Role::kAdmin)).ok());
        return file.string();
    }();
};

TEST_F(FacilityProgramTest, ACheckIsATableThatFitsTheTerminalAndFailsWithARow) {
    ::setenv("COLUMNS", "60", 1);
    CommandResult result = run({"facility", "check", "leonardo"});
    // On a busy machine even this may take the two seconds from which on it is told.
    for (int i = 0; i < 10 && result.err.starts_with("looking at "); ++i)
        result = run({"facility", "check", "leonardo"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out,
              "leonardo: ssh login (login07), checked in 1.5 s\n"
              "FAIL  launcher  --mpi=pmix_v5 is asked for, srun has none,\n"
              "                pmi2, pmix_v3, pmix_v4 and nothing else at\n"
              "                all\n"
              "                → atoll facility set leonardo --launcher 'srun --mpi=pmix_v4 --kill-on-bad-exit=1 "
              "--and-so-on'\n"
              "-     compute   not tried\n"
              "                → free some there: what waits for room goes\n"
              "                  on by itself; or take another:\n"
              "                  atoll facility set leonardo --work-dir DIRECTORY\n");
    ::unsetenv("COLUMNS");
    EXPECT_EQ(result.err, "error: facility leonardo is not ready for jobs\n") << "nothing of what took no time";
    is_sound_ = true;
    const CommandResult json = run({"--json", "facility", "check", "leonardo"});
    EXPECT_EQ(json.exit_code, 1) << "rows decide";
    EXPECT_EQ(Json::parse(json.out).at("checks"), kChecks);
}

TEST_F(FacilityProgramTest, ACheckWarnsOfTextsThatWereTokenisedWithoutAnEnd) {
    has_dataset_ = true;
    const Json checks = Json::parse(run({"--json", "facility", "check", "leonardo"}).out).at("checks");
    EXPECT_EQ(checks.back().at("name"), "dataset diaries") << checks;
    EXPECT_EQ(checks.back().at("state"), "warn");
    EXPECT_EQ(checks.back().at("seen"),
              "version 2: 12 of 100 documents have no end token: a model does not learn there where a text ends");
    EXPECT_NE(checks.back().at("mend").get<std::string>().find("eos_token"), std::string::npos);
}

TEST_F(FacilityProgramTest, ADatasetIsShownWithItsTokenizerAndWhatIsCutOff) {
    const std::string shown = run({"dataset", "show", "diaries"}).out;
    const auto words_of = [](const std::string& text) {
        std::istringstream stream(text);
        return std::vector<std::string>(std::istream_iterator<std::string>(stream), {});
    };
    const auto row = shown.find("\n2 ");
    ASSERT_NE(row, std::string::npos) << shown;
    EXPECT_EQ(join(words_of(shown.substr(row, shown.find('\n', row + 1) - row)), " ").substr(0, 63),
              "2 llama@eeeeeeee 2 128 padding 100 900 60 4.0 % 4.9 KiB leonard")
        << shown;
    EXPECT_NE(shown.find("version 2: an older release prepared it, which reads tokenizers differently (reader 2); "
                         "jobs take what this one prepares: atoll dataset prepare diaries …\n"),
              std::string::npos)
        << shown;
    EXPECT_NE(shown.find("version 2: 12 of 100 documents have no end token\n"), std::string::npos) << shown;
    EXPECT_NE(
        shown.find("version 2: 3 of 100 documents are longer than a row: 4.0 % of all tokens are cut off; a larger "
                   "--seq-len keeps them\n"),
        std::string::npos)
        << shown;
}

TEST_F(FacilityProgramTest, ACheckThatTakesLongSaysWhatItDoes) {
    takes_long_ = true;
    EXPECT_EQ(run_heard({"facility", "check", "leonardo"}).err,
              "looking at leonardo, ssh login …\nerror: facility leonardo is not ready for jobs\n");
}

TEST_F(FacilityProgramTest, AChecksJobIsWaitedForShownAndTakenAway) {
    const CommandResult result =
        run({"--json", "facility", "check", "leonardo", "--job", "--queue", "gpu", "--gpus", "4"});
    EXPECT_EQ(posted(), (Json{{"queue", "gpu"}, {"gpus_per_node", 4}}));
    const Json checks = Json::parse(result.out).at("checks");
    EXPECT_EQ(checks.back().at("name"), "rank 0") << result.out;
    EXPECT_NE(Json::parse(result.out).at("seconds"), 1.5) << "the look alone";
    EXPECT_EQ(jobs_deleted_, 1);
    EXPECT_EQ(run({"facility", "check", "leonardo", "--queue", "gpu"}).exit_code, 2) << "of a job alone";
}

TEST_F(FacilityProgramTest, EachRowOfAChecksJobThatFailsSaysWhatToDo) {
    ::setenv("COLUMNS", "1000", 1);
    const auto check = [&](const std::vector<std::string>& more) {
        std::vector<std::string> all = {"facility", "check", "leonardo", "--job"};
        all.insert(all.end(), more.begin(), more.end());
        return run(all).out;
    };
    const auto refuse = [&](const Error& error) {
        const std::lock_guard lock(mutex_);
        refusal_ = error;
    };
    refuse(with_cause(not_found("sbatch: error: Invalid partition name specified"), Cause::kSite));
    const std::string gone = check({"--queue", "gpu"});
    EXPECT_NE(gone.find("FAIL  compute   no job could be submitted: sbatch: error: Invalid partition"),
              std::string::npos)
        << gone;
    EXPECT_NE(
        gone.find("\n                → `atoll facility show leonardo` shows the queue's settings, `atoll facility set "
                  "leonardo --set batch.queues.gpu.MEMBER=VALUE` changes them"),
        std::string::npos)
        << gone;
    refuse(unavailable("sbatch: error: Socket timed out"));
    EXPECT_NE(check({}).find("→ it may pass: the same command tries again"), std::string::npos);
    {
        const std::lock_guard lock(mutex_);
        refusal_.reset();
    }
    has_mute_row_ = true;
    EXPECT_NE(check({}).find("→ try it there by hand"), std::string::npos) << "of a coordinator of another release";
    ::unsetenv("COLUMNS");
}

TEST_F(FacilityProgramTest, WhatAPreparationWaitsForInItsQueueIsSaid) {
    const CommandResult prepared = run({"dataset", "prepare", "it", "--facility", "leonardo", "--input", "a.jsonl",
                                        "--tokenizer", "llama@v1", "--seq-len", "128"});
    EXPECT_EQ(prepared.exit_code, 0) << prepared.err;
    EXPECT_EQ(prepared.err,
              "  preparation p3: running\n"
              "  preparation p3: its batch job has ended (FAILED) since noon\n"
              "  preparation p3: done\n");
}

TEST_F(FacilityProgramTest, APreparationThatFailsByItsInputIsAnErrorOfTheInput) {
    fails_preparation_ = true;
    const CommandResult failed = run({"dataset", "prepare", "it", "--facility", "leonardo", "--input", "a.jsonl",
                                      "--tokenizer", "llama@v1", "--seq-len", "128", "--json"});
    EXPECT_EQ(failed.exit_code, 2) << failed.out << failed.err;
    EXPECT_NE(
        failed.err.find("the preparation failed: leonardo: prepare failed at attempt 1: tokenizer: cannot be read"),
        std::string::npos)
        << failed.err;
}

TEST_F(FacilityProgramTest, WhatIsShownOfAFacilityCanBeAdded) {
    const CommandResult shown = run({"facility", "show", "leonardo"});
    const std::string file = directory_.path() / "shown.yaml";
    ASSERT_TRUE(write_file_atomic(file, shown.out).ok());
    EXPECT_EQ(run({"facility", "add", "leonardo", "--file", file}).exit_code, 0) << shown.out;
    EXPECT_EQ(posted(), kRecord) << shown.out;
    EXPECT_NE(shown.out.find("# computes on: [\"cpu\"]\n"), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find("# a task waits: sbatch: error: a\n#   sbatch: error: b since noon, and 2 others\n"),
              std::string::npos)
        << shown.out;
    const CommandResult json = run({"--json", "facility", "show", "leonardo"});
    ASSERT_TRUE(write_file_atomic(directory_.path() / "shown.json", json.out).ok());
    EXPECT_EQ(run({"facility", "add", "copy", "--file", directory_.path() / "shown.json"}).exit_code, 0) << json.out;
    EXPECT_EQ(posted().at("name"), "copy");
}

}  // namespace
}  // namespace atl::cli
