// What commands ask of a coordinator, and what they say without one.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <regex>
#include <string>

#include "shared/aggregate/strategy_table.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"

namespace atl::cli {
namespace {

TEST(JobInitTest, ANewJobFileShowsEveryStrategyAndItsSettings) {
    const std::string shown = run_command({ATOLL_PROGRAM, "job", "init"})->out;
    for (const aggregate::StrategyRow& row : aggregate::strategy_rows()) {
        EXPECT_NE(shown.find(row.name), std::string::npos) << row.name;
        for (const auto* setting : row.numbers)
            EXPECT_NE(shown.find(std::string(setting->key) + ":"), std::string::npos) << setting->key;
    }
    for (const char* setting :
         {"weighting:", "absent:", "row_weights:", "control_variate:", "outer:", "clip:", "drop:"})
        EXPECT_NE(shown.find(setting), std::string::npos) << setting;
}

TEST(AskingTest, WhatIsEmptyOrNoTokenIsNamedBeforeAnythingIsAsked) {
    const TemporaryDirectory directory;
    const std::string empty = directory.path() / "empty", job = directory.path() / "job.yaml",
                      token = directory.path() / "token";
    ASSERT_TRUE(write_file_atomic(empty, "\n").ok());
    ASSERT_TRUE(write_file_atomic(job, "name: italian\nrounds: 3\n").ok());
    ASSERT_TRUE(write_file_atomic(token, "a.b.c\n").ok());
    const auto refusal = [](const std::string& token_file, const std::vector<std::string>& arguments) {
        std::vector<std::string> all = {ATOLL_PROGRAM, "--gateway", "http://127.0.0.1:9", "--token-file", token_file};
        all.insert(all.end(), arguments.begin(), arguments.end());
        const CommandResult result = run_command(all).value();
        EXPECT_EQ(result.exit_code, 2) << result.out;
        return result.err;
    };
    EXPECT_EQ(refusal(empty, {"job", "list"}), "error: --token-file: " + empty + " is empty\n");
    EXPECT_EQ(refusal(job, {"job", "list"}), "error: --token-file: " + job + " holds no token\n");
    struct Typed {
        std::vector<std::string> arguments;
        std::string said;
    };
    for (const Typed& typed :
         std::vector<Typed>{{{"model", "show", "llama@"}, "version: nothing stands after the @"},
                            {{"model", "untag", "llama"}, "tag: give MODEL@TAG, as llama@TAG"},
                            {{"facility", "login", ""}, "name: is empty"},
                            {{"token", "revoke", ""}, "id: is empty"},
                            {{"job", "submit", empty}, empty + ": is empty"},
                            {{"model", "pull", "@v1", "--out", empty + "2"}, "version: no model stands before the @"},
                            {{"dataset", "prepare", "it", "--facility", "leonardo", "--input", "", "--tokenizer",
                              "llama@v1", "--seq-len", "16"},
                             "--input: is empty"}}) {
        const std::string said = refusal(token, typed.arguments);
        EXPECT_TRUE(said.starts_with("error: " + typed.said)) << said;
    }
}

TEST(AskingTest, ASocketThatNobodyListensAtLeadsToTheStatus) {
    CommandOptions options;
    options.environment = {{"ATOLL_TOKEN", "a.b.c"}};
    const auto told = run_command({ATOLL_PROGRAM, "--gateway", "unix:/run/no-such.sock:", "job", "list"}, options);
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told->exit_code, 1);
    EXPECT_TRUE(told->err.ends_with(": nothing listens there; `atoll status` says what runs\n")) << told->err;
}

TEST(DoctorTest, ServicesThatAreAwayAreAskedOnceAndAllAtOnce) {
    std::latch all_asked(4);
    std::atomic<int> asked = 0;
    const http::TestServer server([&](http::Server& routes) {
        for (const std::string service : {"/registry", "/store", "/dispatch", "/aggregation"}) {
            routes.route(http::Method::kGet, service + "/readyz", http::Access::open(), [&](const http::Request&) {
                all_asked.arrive_and_wait();  // one after another they would each take doctor's whole patience
                return http::Response::problem(unavailable("it is away"));
            });
            routes.route(http::Method::kGet, service + "/v1/metrics", http::Access::open(), [&](const http::Request&) {
                ++asked;
                return http::Response::problem(unavailable("waited for long"));
            });
        }
    });
    CommandOptions options;
    options.environment = {{"ATOLL_TOKEN", server.token(auth::Role::kViewer)}};
    const auto told = run_command({ATOLL_PROGRAM, "doctor", "--gateway", server.url()}, options);
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told->exit_code, 1) << told->out << told->err;
    const std::regex reason("it is away");
    EXPECT_EQ(std::distance(std::sregex_iterator(told->out.begin(), told->out.end(), reason), {}), 4) << told->out;
    EXPECT_EQ(told->out.find("waited for long"), std::string::npos) << told->out;
    EXPECT_EQ(asked, 4);
}

// `docker exec` hands a token in by a pipe, and `doctor` asks four services.
TEST(AskingTest, ATokenFromAPipeIsReadOnce) {
    const auto result = run_command({"sh", "-c",
                                     "echo a.b.c | " + std::string(ATOLL_PROGRAM) +
                                         " --gateway http://127.0.0.1:9 --token-file /dev/stdin doctor"})
                            .value();
    const std::string said = result.out + result.err;
    EXPECT_NE(said.find("dispatch"), std::string::npos) << said;
    EXPECT_EQ(said.find("is empty"), std::string::npos) << said;
}

}  // namespace
}  // namespace atl::cli
