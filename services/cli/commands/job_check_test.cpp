#include <gtest/gtest.h>

#include <mutex>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"

namespace atl::cli {
namespace {

using http::Access;
using http::Method;
using http::Request;
using http::Response;
using json::Json;

// The program itself against a dispatch that finds nothing wrong with the job "good".
class JobCheckProgramTest : public testing::Test {
  protected:
    CommandResult run(const std::vector<std::string>& arguments) const {
        std::vector<std::string> all = {ATOLL_PROGRAM, "--gateway", server_.url(), "--token-file", token_file_};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return run_command(all).value();
    }
    static Json finding(const char* path, const char* facility, const char* name, const char* state, const char* seen,
                        const char* field = "") {
        return {{"path", path},   {"facility", facility}, {"name", name},
                {"state", state}, {"seen", seen},         {"field", field}};
    }
    static Json answer(bool ok) {
        Json findings = {finding("model", "", "model", "ok", "tiny@v1: llama, 1.0 kB"),
                         finding("participants[0]", "leonardo", "data", "ok", "it version 2")};
        if (!ok)
            findings.push_back(finding("participants[0]", "leonardo", "context", "fail",
                                       "its rows of 4096 tokens are longer than the 2048 that the model takes, so they "
                                       "are refused",
                                       "participants[0].dataset"));
        return {{"ok", ok}, {"findings", findings}, {"to_facilities_bytes", 3e9}, {"from_facilities_bytes", 2e9}};
    }
    Json ordered() {
        const std::lock_guard lock(mutex_);
        return ordered_;
    }
    std::mutex mutex_;
    Json ordered_;  // of the job that goes on
    http::TestServer server_{[this](http::Server& server) {
        const Access admins = Access::roles({auth::Role::kAdmin});
        server.route(Method::kPost, "/dispatch/v1/job-checks", admins, [](const Request& request) {
            return Response::json(200, answer(request.json()->value("name", "") == "good"));
        });
        server.route(Method::kPost, "/dispatch/v1/jobs", admins, [](const Request&) {
            return Response::json(201, {{"id", "j1"}, {"warnings", {"leonardo: a step takes 9 rows of 4"}}});
        });
        server.route(Method::kGet, "/dispatch/v1/jobs", admins, [](const Request&) {
            const Json job = {{"id", "01m8kezc9v1py6g6n2r0nrbysr"}, {"name", "italian"}, {"state", "paused"}};
            return Response::json(200, {{"items", {job}}, {"next", nullptr}});
        });
        server.route(Method::kPost, "/dispatch/v1/jobs/:id/resume", admins, [this](const Request& request) {
            const std::lock_guard lock(mutex_);
            ordered_ = *request.json();
            return Response::json(200,
                                  {{"id", request.param("id")}, {"state", "running"}, {"round", 3}, {"rounds", 9}});
        });
    }};
    TemporaryDirectory directory_;
    std::string job_ = directory_.path() / "job.json";
    std::string token_file_ = [this] {
        const auto file = directory_.path() / "token";
        EXPECT_TRUE(write_file_atomic(file, server_.token(auth::Role::kAdmin)).ok());
        return file.string();
    }();
};

TEST_F(JobCheckProgramTest, AConfigurationOfAnotherProgramIsNoJob) {
    const std::string file = directory_.path() / "ds.json";
    ASSERT_TRUE(write_file_atomic(file, R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}})").ok());
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"job", "submit", file}, {"job", "submit", file, "--check"}, {"job", "script", file, "--facility", "x"}}) {
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2) << result.out;
        EXPECT_NE(result.err.find("is a DeepSpeed configuration, no job: `atoll-trainer config-from " + file + "`"),
                  std::string::npos)
            << result.err;
    }
}

TEST_F(JobCheckProgramTest, AJobIsCheckedAndNothingIsSubmitted) {
    ASSERT_TRUE(write_file_atomic(job_, R"({"name": "good"})").ok());
    const CommandResult good = run({"job", "submit", job_, "--check"});
    EXPECT_EQ(good.exit_code, 0) << good.err;
    EXPECT_EQ(good.out,
              "ok    model  tiny@v1: llama, 1.0 kB\n"
              "\nparticipants[0]: leonardo\n"
              "ok    data  it version 2\n"
              "\nto the facilities: 2.8 GiB at most; back: 1.9 GiB\n");
    ASSERT_TRUE(write_file_atomic(job_, R"({"name": "bad"})").ok());
    ::setenv("COLUMNS", "60", 1);
    const CommandResult bad = run({"job", "submit", job_, "--check"});
    ::unsetenv("COLUMNS");
    EXPECT_EQ(bad.exit_code, 2);
    EXPECT_NE(bad.out.find("FAIL  context  participants[0].dataset: its rows of 4096\n"
                           "               tokens are longer than the 2048"),
              std::string::npos)
        << bad.out;
    EXPECT_EQ(bad.out.find("→"), std::string::npos) << "what is found says itself what to do: " << bad.out;
    EXPECT_EQ(bad.err, "error: the job would be refused: 1 check fails\n");
    EXPECT_EQ(Json::parse(run({"job", "submit", job_, "--check", "--json"}).out), answer(false));
    EXPECT_EQ(run({"job", "submit", job_, "--check", "--watch"}).exit_code, 2);
}

TEST_F(JobCheckProgramTest, ASubmissionSaysWhatShouldBeLookedAt) {
    ASSERT_TRUE(write_file_atomic(job_, R"({"name": "good"})").ok());
    const CommandResult submitted = run({"job", "submit", job_});
    EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
    EXPECT_EQ(submitted.err, "warning: leonardo: a step takes 9 rows of 4\n");
    EXPECT_NE(submitted.out.find("submitted job j1"), std::string::npos) << submitted.out;
}

TEST_F(JobCheckProgramTest, HowAJobGoesOnIsSentAsItWasTyped) {
    const std::vector<std::pair<std::vector<std::string>, Json>> orders = {
        {{}, Json::object()},
        {{"--accept"}, {{"accept", true}}},
        {{"--without", "leonardo", "--without", "lumi"}, {{"without", {"leonardo", "lumi"}}}},
        {{"--from-round", "0"}, {{"from_round", 0}}},
        {{"--accept", "--without", "lumi", "--from-round", "2"},
         {{"accept", true}, {"without", {"lumi"}}, {"from_round", 2}}}};
    for (const auto& [flags, wanted] : orders) {
        std::vector<std::string> words = {"job", "resume", "newest"};
        words.insert(words.end(), flags.begin(), flags.end());
        const CommandResult resumed = run(words);
        EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
        EXPECT_EQ(ordered(), wanted);
        EXPECT_NE(resumed.out.find("is running, at round 3"), std::string::npos) << resumed.out;
    }
    EXPECT_EQ(run({"job", "resume", "newest", "--from-round", "-1"}).exit_code, 2);
}

}  // namespace
}  // namespace atl::cli
