#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>

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

const Json kFacility = {{"name", "leonardo"},
                        {"transport", {{"kind", "ssh"}, {"host", "login"}}},
                        {"batch", {{"kind", "slurm"}, {"queues", {{"gpu", Json::object()}}}}},
                        {"environment", {{"HTTPS_PROXY", "http://proxy:3128"}}},
                        {"work_dir", "/scratch"}};
const Json kJobs = {{"items", {{{"id", "job1"}, {"name", "italian"}, {"state", "running"}}}}, {"next", nullptr}};
constexpr const char* kLogsText =
    "== round 2, train at leonardo, task t1, attempt 3: stdout.jsonl\n{\"step\":1}\n"
    "== round 2, train at leonardo, task t1, attempt 3: stderr.log\n";
// One log of one line.
const Json kLogs = {{{"round", 2},
                     {"kind", "train"},
                     {"facility", "leonardo"},
                     {"task", "t1"},
                     {"attempt", 3},
                     {"file", "stdout.jsonl"},
                     {"text", "== round 2, train at leonardo, task t1, attempt 3: stderr.log\n"}}};

// A server of somebody else, who would like to be shown a token.
class Stranger {
  public:
    std::string url() const { return server_.url(); }
    std::string received() const {
        const std::lock_guard lock(mutex_);
        return received_;
    }

  private:
    mutable std::mutex mutex_;
    std::string received_ = "no call";
    http::TestServer server_{[this](http::Server& server) {
        for (const char* path : {"/dispatch/v1/jobs", "/store/v1/models", "/registry/v1/datasets/:name"})
            server.route(Method::kGet, path, Access::open(), [this](const Request& request) {
                const std::lock_guard lock(mutex_);
                received_ = request.header("authorization");
                return Response::json(200, kJobs);
            });
    }};
};

// The program itself against a made-up dispatch.
class CliProgramTest : public testing::Test {
  protected:
    std::vector<std::string> command(const std::vector<std::string>& arguments) const {
        std::vector<std::string> all = {ATOLL_PROGRAM, "--gateway", server_.url(), "--token-file", token_file_};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return all;
    }
    CommandResult run(const std::vector<std::string>& arguments) const {
        return run_command(command(arguments)).value();
    }

    void add_routes(http::Server& server) {
        const Access anyone = Access::roles({auth::Role::kAdmin});
        server.route(Method::kGet, "/dispatch/v1/facilities/:name", anyone, [](const Request& request) {
            if (request.param("name") == "here")
                return Response::json(200, {{"name", "here"}, {"transport", {{"kind", "local"}}}})
                    .with("ETag", "\"1\"");
            if (request.param("name") != "leonardo")
                return Response::problem(not_found("no facility \"" + request.param("name") + "\""));
            return Response::json(200, kFacility).with("ETag", "\"3\"");
        });
        const auto list = [&server, anyone](const std::string& path, const std::string& name) {
            server.route(Method::kGet, path, anyone, [name](const Request&) {
                return Response::json(200, {{"items", {{{"name", name}}}}, {"next", nullptr}});
            });
        };
        const auto nothing = [](const Request&) { return Response::problem(not_found("nothing of that name")); };
        list("/dispatch/v1/facilities", "leonardo");
        server.route(Method::kGet, "/dispatch/v1/tokens", anyone, [](const Request&) {
            return Response::json(200, {{"items", {{{"subject", "ada"}}}}, {"next", nullptr}});
        });
        list("/registry/v1/datasets", "diaries");
        list("/store/v1/models", "llama");
        server.route(Method::kPost, "/dispatch/v1/facilities/:name/check", anyone, nothing);
        server.route(Method::kPost, "/dispatch/v1/facilities/:name/host-key", anyone, [](const Request&) {
            return Response::json(200, {{"host_key", "ssh-ed25519 AAAA"}, {"fingerprint", "SHA256:abc"}});
        });
        server.route(Method::kPost, "/dispatch/v1/facilities/:name/login", anyone, [](const Request& request) {
            char machine[256] = {};
            const bool is_here = ::gethostname(machine, sizeof machine - 1) == 0 && request.param("name") == "leonardo";
            return Response::json(200, {{"command", {"echo", "ControlPath=\"/run\""}},
                                        {"machine", is_here ? machine : "elsewhere"},
                                        {"user_id", ::geteuid()}});
        });
        server.route(Method::kDelete, "/dispatch/v1/facilities/:name", anyone, nothing);
        server.route(Method::kGet, "/registry/v1/datasets/:name", anyone, nothing);
        server.route(Method::kDelete, "/registry/v1/datasets/:name", anyone, [](const Request& request) {
            if (request.param("name") != "diaries")
                return Response::problem(not_found("there is no such dataset", "dataset"));
            const Json copy = {{"version", 3}, {"facility", "leonardo"}, {"path", "datasets/diaries/3"}};
            return Response::json(200, {{"left", Json::array({copy})}});
        });
        server.route(Method::kDelete, "/dispatch/v1/jobs/:id", anyone, [](const Request&) {
            const Json site = {{"facility", "leonardo"}, {"work_dir", "/scratch"}, {"tasks", {"t1", "t2"}}};
            return Response::json(200, {{"left", Json::array({site})}});
        });
        server.route(Method::kGet, "/store/v1/models/:name", anyone, [](const Request& request) {
            if (request.param("name") != "llama") return Response::problem(not_found("nothing of that name"));
            return Response::json(200, {{"name", "llama"}, {"tags", {{"final", "d1"}}}});
        });
        const auto received = [this](const Request& request) {
            set(posted_, request.json().value());
            return Response::json(201, {{"id", "job2"}});
        };
        server.route(Method::kPost, "/dispatch/v1/facilities", anyone, received);
        server.route(Method::kPost, "/dispatch/v1/jobs", anyone, received);
        server.route(Method::kPost, "/store/v1/models", anyone,
                     [](const Request&) { return Response::problem(conflict("it exists")); });
        server.route(Method::kPatch, "/dispatch/v1/facilities/:name", anyone, [this](const Request& request) {
            set(patch_, request);
            Json patched = kFacility;
            patched.merge_patch(request.json().value());
            return Response::json(200, patched);
        });
        server.route(Method::kGet, "/dispatch/v1/preparations", anyone, [](const Request&) {
            const Json failed = {{"id", "p2"},
                                 {"dataset", "it"},
                                 {"facility", "leonardo"},
                                 {"state", "failed"},
                                 {"error", "no such file"}};
            const Json done = {
                {"id", "p1"}, {"dataset", "cs"}, {"facility", "karolina"}, {"state", "done"}, {"version", 7}};
            return Response::json(200, {{"items", {failed, done}}, {"next", nullptr}});
        });
        server.route(Method::kGet, "/dispatch/v1/jobs", anyone,
                     [](const Request&) { return Response::json(200, kJobs); });
        server.route(Method::kGet, "/dispatch/v1/jobs/:id", anyone, [this](const Request& request) {
            const Json tasks = {{"train", {{looks_until_the_end_-- > 0 ? "running" : "cancelled", 2}}}};
            return Response::json(
                200, {{"id", request.param("id")}, {"name", "italian"}, {"state", "running"}, {"tasks", tasks}});
        });
        server.route(Method::kPost, "/dispatch/v1/jobs/:id/cancel", anyone, [this](const Request& request) {
            set(cancelled_, request.param("id"));
            return Response::json(200, {{"id", request.param("id")}, {"state", "cancelled"}});
        });
        server.route(Method::kGet, "/dispatch/v1/jobs/:id/logs", anyone, [](const Request& request) {
            if (request.query.contains("format")) return Response::json(200, {{"items", kLogs}, {"next", nullptr}});
            const auto attempt = request.query.find("attempt");
            return Response::text(
                200, attempt == request.query.end() ? std::string(kLogsText) : "of attempt " + attempt->second + "\n");
        });
        server.route(Method::kGet, "/dispatch/v1/jobs/:id/rounds", anyone, [](const Request&) {
            const Json task = {
                {"id", "t1"},       {"kind", "train"}, {"facility", "leonardo"},      {"state", "running"},
                {"step", "queued"}, {"attempt", 1},    {"queue_reason", "Resources"}, {"queue_reason_since", "noon"}};
            const Json staging = {{"id", "t2"},
                                  {"kind", "train"},
                                  {"facility", "lumi"},
                                  {"state", "running"},
                                  {"step", "staging"},
                                  {"attempt", 1},
                                  {"moving", {{"bytes_done", 7 << 20}, {"bytes_total", 42 << 20}}}};
            const Json round = {{"round", 1}, {"state", "training"}, {"tasks", {task, staging}}};
            return Response::json(200, {{"items", {round}}, {"next", nullptr}});
        });
        server.route(Method::kGet, "/dispatch/v1/jobs/:id/tasks/:task/script", anyone, [](const Request& request) {
            return Response::text(200, "script of " + request.param("task") + " of " + request.param("id") + "\n");
        });
        server.route(Method::kPost, "/dispatch/v1/scripts", anyone, [](const Request& request) {
            return Response::text(200, request.query.at("facility") + ": " + request.body + "\n");
        });
        server.route(Method::kGet, "/dispatch/v1/jobs/:id/events", anyone, [this](const Request&) {
            ::kill(watcher_.get(), SIGINT);  // whoever watches is waiting by now
            return Response::json(200, {{"items", Json::array()}, {"next", "0"}});
        });
    }

    // The state directory of a stack whose gateway is a made-up server; nothing of it can be stopped. At `port` another
    // server listens.
    std::string make_state(const std::string& port) const {
        const auto state = directory_.path() / "state";
        std::filesystem::create_directories(state / "config");
        std::filesystem::create_directories(state / "tokens");
        const Json stack = {{"gateway", port}, {"gateway_socket", socket_}};
        EXPECT_TRUE(write_file_atomic(state / "stack.json", stack.dump()).ok());
        EXPECT_TRUE(write_file_atomic(state / "config/dispatch.yaml", "").ok());
        EXPECT_TRUE(write_file_atomic(state / "tokens/admin.token", gateway_.token(auth::Role::kAdmin)).ok());
        return state.string();
    }

    // What the server's threads leave for the test's.
    template <class T, class Value>
    void set(T& kept, Value&& value) {
        const std::lock_guard lock(mutex_);
        kept = std::forward<Value>(value);
    }
    template <class T>
    T get(const T& kept) {
        const std::lock_guard lock(mutex_);
        return kept;
    }

    std::mutex mutex_;
    Request patch_;
    Json posted_;
    std::string cancelled_;
    std::atomic<int> looks_until_the_end_ = 0;
    std::promise<pid_t> watcher_is_;
    std::shared_future<pid_t> watcher_ = watcher_is_.get_future().share();
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }};
    TemporaryDirectory directory_;
    std::string socket_ = "unix:" + (directory_.path() / "gateway.sock").string();
    http::TestServer gateway_{[this](http::Server& server) { add_routes(server); },
                              [this] {
                                  http::ServerOptions options;
                                  options.address = socket_;
                                  return options;
                              }()};
    std::string token_file_ = [this] {
        const auto file = directory_.path() / "token";
        EXPECT_TRUE(write_file_atomic(file, server_.token(auth::Role::kAdmin)).ok());
        return file.string();
    }();
};

TEST_F(CliProgramTest, FacilitySetSendsOnlyWhatWasSaidForTheStateThatWasRead) {
    const CommandResult result = run({"facility", "set", "leonardo", "--programs", "/opt/bin", "--slots", "4"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(get(patch_).json().value(), (Json{{"programs", "/opt/bin"}, {"batch", {{"slots", 4}}}}));
    EXPECT_EQ(get(patch_).header("if-match"), "\"3\"");
    EXPECT_TRUE(result.out.starts_with("name: leonardo\ntransport:\n  host: login\n  kind: ssh\nbatch:\n"))
        << result.out;
    const std::vector<std::string> fields = {"facility",
                                             "set",
                                             "leonardo",
                                             "--set",
                                             "batch.queues.gpu.time_max=1:00:00",
                                             "--set",
                                             "batch.queues.gpu.nodes_max=4",
                                             "--set",
                                             "image=null"};
    const CommandResult by_path = run(fields);
    EXPECT_EQ(by_path.exit_code, 0) << by_path.err;
    const Json gpu = {{"time_max", "1:00:00"}, {"nodes_max", 4}};
    EXPECT_EQ(get(patch_).json().value(), (Json{{"batch", {{"queues", {{"gpu", gpu}}}}}, {"image", nullptr}}));
    for (const auto& [slip, said] : std::vector<std::pair<std::string, std::string>>{
             {"batch.queues.gpv.time_max=1:00:00",
              "no queue gpv; did you mean gpu?\n  a new one is given whole: --set 'ba"},
             {"batch.queues.gpv=null", "no queue gpv; did you mean gpu?"},
             {"environment.HTTP_PROXY=null", "no variable HTTP_PROXY to take away; did you mean HTTPS_PROXY?"}}) {
        const CommandResult refused = run({"facility", "set", "leonardo", "--set", slip});
        EXPECT_EQ(refused.exit_code, 2) << slip;
        EXPECT_NE(refused.err.find(said), std::string::npos) << refused.err;
    }
    for (const char* meant : {"batch.queues.long={\"partition\":\"long\"}", "batch.queues.gpu=null",
                              "environment.NEW=x", "environment.HTTPS_PROXY=null"})
        EXPECT_EQ(run({"facility", "set", "leonardo", "--set", meant}).exit_code, 0) << meant;
    EXPECT_EQ(run({"facility", "set", "leonardo", "--set", "launcher"}).exit_code, 2);
    EXPECT_EQ(run({"facility", "set", "leonardo"}).exit_code, 2) << "nothing was said";
    const auto allowing = run({"facility", "set", "leonardo", "--allow", "ada", "--allow", "bo", "--logs", "none"});
    EXPECT_EQ(allowing.exit_code, 0);
    EXPECT_EQ(allowing.err,
              "no token was issued to bo here (`atoll token list`): is that the name of a person or a program?\n");
    EXPECT_EQ(get(patch_).json().value(), (Json{{"allow", {"ada", "bo"}}, {"logs", {{"return", "none"}}}}));
    EXPECT_EQ(run({"facility", "set", "leonardo", "--allow", "", "--owner", "ada"}).exit_code, 0);
    EXPECT_EQ(get(patch_).json().value(), (Json{{"allow", Json::array()}, {"owner", "ada"}}));
    EXPECT_EQ(run({"facility", "set", "leonardo", "--data", "ssh"}).exit_code, 0);
    EXPECT_EQ(get(patch_).json().value(), (Json{{"transport", {{"data", "ssh"}}}}));
    EXPECT_EQ(get(patch_).query.count("give_up_tasks"), 0U);
    EXPECT_EQ(run({"facility", "set", "leonardo", "--give-up-tasks"}).exit_code, 0);
    EXPECT_EQ(get(patch_).query.at("give_up_tasks"), "true");
    EXPECT_EQ(get(patch_).json().value(), Json::object());
}

TEST_F(CliProgramTest, WhatIsNotThereIsBadInput) {
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"facility", "show", "nobody"}, {"job", "show", "nothing"}, {"round", "show", "italian", "9"}}) {
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(arguments) << "\n" << result.err;
    }
}

TEST_F(CliProgramTest, WhatIsRemovedSaysWhatStaysAtTheSites) {
    const CommandResult dataset = run({"dataset", "rm", "diaries"});
    EXPECT_EQ(dataset.out, "removed\n  stays at leonardo: datasets/diaries/3 in its work directory (version 3)\n");
    const CommandResult job = run({"job", "rm", "newest"});
    EXPECT_NE(job.out.find("logs stay at leonardo: 2 directories in /scratch/tasks\n"), std::string::npos) << job.out;
    for (const auto& wrong : std::vector<std::vector<std::string>>{{"dataset", "rm"},
                                                                   {"dataset", "rm", "diaries", "--preparation", "p1"},
                                                                   {"dataset", "rm", "diaries", "--copy", "leonardo"}})
        EXPECT_EQ(run(wrong).exit_code, 2) << testing::PrintToString(wrong);
}

TEST_F(CliProgramTest, AHostKeyIsPinnedWhenItIsTheOneThatIsMeant) {
    const CommandResult unsaid = run({"facility", "trust", "leonardo"});
    EXPECT_EQ(unsaid.exit_code, 2) << unsaid.err;
    EXPECT_NE(unsaid.err.find("give --fingerprint SHA256:abc"), std::string::npos) << unsaid.err;
    const CommandResult other = run({"facility", "trust", "leonardo", "--fingerprint", "SHA256:xyz"});
    EXPECT_NE(other.exit_code, 0);
    EXPECT_NE(other.err.find("shows another key, SHA256:abc"), std::string::npos) << other.err;
    EXPECT_TRUE(get(patch_).body.empty());
    const CommandResult meant = run({"facility", "trust", "leonardo", "--fingerprint", "SHA256:abc"});
    EXPECT_EQ(meant.exit_code, 0) << meant.err;
    EXPECT_EQ(get(patch_).json().value(), (Json{{"transport", {{"host_key", "ssh-ed25519 AAAA"}}}}));
    EXPECT_EQ(get(patch_).header("if-match"), "\"3\"");
    const CommandResult local = run({"facility", "trust", "here"});
    EXPECT_EQ(local.exit_code, 1) << local.out;
    EXPECT_NE(local.err.find("there is no host key to trust"), std::string::npos) << local.err;
}

TEST_F(CliProgramTest, ALoginRunsWhereDispatchDoes) {
    EXPECT_EQ(run({"facility", "login", "leonardo"}).out, "ControlPath=\"/run\"\n");
    const CommandResult far = run({"facility", "login", "karolina"});
    EXPECT_EQ(far.out, "echo 'ControlPath=\"/run\"'\n");
    EXPECT_EQ(far.err, "run this on elsewhere, where dispatch runs, as its user:\n");
}

TEST_F(CliProgramTest, AMistypedNameIsAnsweredWithTheNearest) {
    struct Typed {
        std::vector<std::string> command;
        std::string meant;
    };
    const std::string facility = "leonardo";
    const std::string dataset = "diaries";
    const std::string model = "llama";
    for (const Typed& typed : std::vector<Typed>{{{"facility", "show", "leonrado"}, facility},
                                                 {{"facility", "set", "leonrado", "--slots", "2"}, facility},
                                                 {{"facility", "check", "leonrado"}, facility},
                                                 {{"facility", "rm", "leonrado"}, facility},
                                                 {{"facility", "trust", "leonrado"}, facility},
                                                 {{"dataset", "show", "dairies"}, dataset},
                                                 {{"dataset", "show", "dairies", "--croissant"}, dataset},
                                                 {{"dataset", "preparations", "dairies"}, dataset},
                                                 {{"dataset", "rm", "dairies"}, dataset},
                                                 {{"model", "show", "lama"}, model},
                                                 {{"model", "pull", "lama@v1", "--out", "x"}, model},
                                                 {{"model", "tag", "llama@finall", "best"}, "final"}}) {
        const CommandResult result = run(typed.command);
        EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(typed.command);
        EXPECT_TRUE(result.err.ends_with(" " + typed.meant + "?\n")) << result.err;
    }
}

TEST_F(CliProgramTest, AStackThatIsDownIsNamedWithTheCommandThatStartsIt) {
    const Stranger stranger;  // takes the port meanwhile
    const Json stack = {{"gateway", stranger.url()}, {"gateway_socket", socket_ + "-that-is-gone"}};
    const std::string state = directory_.path().string();
    std::filesystem::create_directories(state + "/config");
    ASSERT_TRUE(write_file_atomic(directory_.path() / "stack.json", stack.dump()).ok());
    ASSERT_TRUE(write_file_atomic(directory_.path() / "config/dispatch.yaml", "").ok());
    CommandOptions options;
    options.environment = {{"ATOLL_GATEWAY", ""}};
    for (const std::vector<std::string>& command : {std::vector<std::string>{"job", "list"},
                                                    {"model", "push", "m", state + "/config"},
                                                    {"dataset", "show", "it"},
                                                    {"--gateway", stranger.url(), "job", "list"}}) {
        std::vector<std::string> all = {ATOLL_PROGRAM, "--state", state, "--token-file", token_file_};
        all.insert(all.end(), command.begin(), command.end());
        const CommandResult result = run_command(all, options).value();
        EXPECT_EQ(result.exit_code, 1);
        EXPECT_TRUE(result.err.ends_with(" atoll up --state " + state + "\n")) << result.err;
    }
    const CommandResult down = run_command({ATOLL_PROGRAM, "down", "--delete", "--yes", "--state", state}).value();
    EXPECT_NE(down.err.find("dispatch does not answer"), std::string::npos) << down.err;
    EXPECT_EQ(stranger.received(), "no call");
}

TEST_F(CliProgramTest, TheTokenOfAStackGoesToItsOwnGatewayAlone) {
    const Stranger at_its_port, other;
    const std::string state = make_state(at_its_port.url());
    CommandOptions options;
    options.environment = {{"ATOLL_GATEWAY", ""}, {"ATOLL_TOKEN", ""}};
    const auto list_at = [&](const std::string& gateway) {
        return run_command({ATOLL_PROGRAM, "--state", state, "--gateway", gateway, "job", "list"}, options).value();
    };
    EXPECT_EQ(list_at(at_its_port.url()).exit_code, 0);
    EXPECT_EQ(list_at(at_its_port.url() + "/").exit_code, 0);
    EXPECT_EQ(run_command({ATOLL_PROGRAM, "--state", state, "job", "list"}, options)->exit_code, 0);
    EXPECT_EQ(at_its_port.received(), "no call") << "the socket is its own";
    const CommandResult refused = list_at(other.url());
    EXPECT_EQ(other.received(), "no call");
    EXPECT_EQ(refused.exit_code, 1) << refused.out;
    for (const std::string& named : {other.url(), state, at_its_port.url(), std::string("--token-file")})
        EXPECT_NE(refused.err.find(named), std::string::npos) << refused.err;
    options.environment["ATOLL_TOKEN"] = "given";
    EXPECT_EQ(list_at(other.url()).exit_code, 0);
    EXPECT_EQ(other.received(), "Bearer given");
}

TEST_F(CliProgramTest, AStackWithJobsUnderWayIsDeletedOnlyWhenTheyAreCancelledFirst) {
    const std::string state = make_state(server_.url());
    looks_until_the_end_ = 2;
    const CommandResult refused = run({"down", "--delete", "--yes", "--state", state});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("job1  italian, running"), std::string::npos) << refused.err;
    EXPECT_TRUE(std::filesystem::exists(state + "/stack.json"));
    EXPECT_EQ(get(cancelled_), "");
    const CommandResult gone = run({"down", "--delete", "--yes", "--cancel-jobs", "--state", state});
    EXPECT_TRUE(gone.exit_code == 0 && gone.err.find("deleted everything in " + state) != state.npos) << gone.err;
    EXPECT_EQ(get(cancelled_), "job1");
    EXPECT_LE(looks_until_the_end_, 0) << "its tasks had not ended yet";
    EXPECT_FALSE(std::filesystem::exists(state + "/stack.json"));
}

TEST_F(CliProgramTest, DownNamesTheJobsThatGoOnWithoutIt) {
    const std::string state = make_state(server_.url());
    std::filesystem::create_directories(state + "/run");
    std::filesystem::create_directories(state + "/logs");
    const Json answer = Json::parse(run({"down", "--json", "--state", state}).out);
    EXPECT_EQ(answer.at("unfinished_jobs").at(0).at("id"), "job1") << answer;
    EXPECT_EQ(get(cancelled_), "");
}

TEST_F(CliProgramTest, PreparationsAreFoundAgainWithTheirErrors) {
    const std::string all = run({"dataset", "preparations"}).out;
    EXPECT_NE(all.find("no such file"), std::string::npos) << all;
    EXPECT_NE(all.find("karolina"), std::string::npos) << all;
    EXPECT_NE(all.find("7 (removed)"), std::string::npos) << "its dataset is gone: " << all;
    const std::string of_one = run({"dataset", "preparations", "it"}).out;
    EXPECT_NE(of_one.find("p2"), std::string::npos) << of_one;
    EXPECT_EQ(of_one.find("p1"), std::string::npos) << of_one;
}

TEST_F(CliProgramTest, ABatchScriptIsOfAJobFileOrATask) {
    const std::string file = directory_.path() / "job.yaml";
    ASSERT_TRUE(write_file_atomic(file, "rounds: 2\n").ok());
    EXPECT_EQ(run({"job", "script", file, "--facility", "leonardo"}).out, "leonardo: {\"rounds\":2}\n");
    EXPECT_EQ(run({"job", "script", "italian/t7"}).out, "script of t7 of job1\n");
    EXPECT_EQ(run({"job", "script", "newest", "--facility", "leonardo"}).out, "script of t1 of job1\n");
    for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{}, {"--facility", "karolina"}}) {
        std::vector<std::string> arguments = {"job", "script", "italian"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_NE(result.err.find("--facility"), std::string::npos) << result.err;
    }
}

TEST_F(CliProgramTest, ATaskThatWaitsInAQueueSaysWhy) {
    const std::string shown = run({"round", "show", "italian"}).out;
    EXPECT_NE(shown.find("Resources since noon"), std::string::npos) << shown;
}

TEST_F(CliProgramTest, ATaskThatMovesDataSaysHowFarItIs) {
    const std::string shown = run({"round", "show", "italian"}).out;
    EXPECT_NE(shown.find("7.0 MiB of 42.0 MiB"), std::string::npos) << shown;
}

TEST_F(CliProgramTest, LogsAreJsonWhereThatIsAskedFor) {
    EXPECT_EQ(Json::parse(run({"job", "logs", "italian", "--json"}).out, nullptr, false), kLogs);
    EXPECT_EQ(run({"job", "logs", "italian"}).out, kLogsText);
    EXPECT_EQ(run({"job", "logs", "italian", "--attempt", "2"}).out, "of attempt 2\n");
}

TEST_F(CliProgramTest, AnImportIsRefusedForItsNamesBeforeAnythingIsSent) {
    for (const std::vector<std::string>& names :
         std::vector<std::vector<std::string>>{{"llama", "--tag", "v 1"}, {"Llama", "--tag", "v1"}}) {
        std::vector<std::string> import = {"model", "import", names[0], directory_.path().string()};
        import.insert(import.end(), names.begin() + 1, names.end());
        std::vector<std::string> push = import;
        push[1] = "push";
        for (const auto& arguments : {import, push}) {
            const CommandResult result = run(arguments);
            EXPECT_EQ(result.exit_code, 2);
            EXPECT_NE(result.err.find("lower-case letters"), std::string::npos) << result.err;
        }
    }
    EXPECT_NE(run({"model", "import", "llama"}).err.find(" DIR,"), std::string::npos);
}

TEST_F(CliProgramTest, ARoundBelowZeroIsRefused) {
    const CommandResult refused = run({"round", "show", "italian", "-1"});
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_TRUE(refused.err.starts_with("error: round: must be 0 or more")) << refused.err;
    EXPECT_NE(run({"round", "show", "italian", "0"}).err.find("has no round 0"), std::string::npos);
}

TEST_F(CliProgramTest, CurvesHaveOneForm) {
    const CommandResult refused = run({"--json", "job", "metrics", "italian", "--csv"});
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_NE(refused.err.find("--csv"), std::string::npos) << refused.err;
}

TEST_F(CliProgramTest, AListOfJobsIsCutDownToStates) {
    EXPECT_NE(run({"job", "list", "--only", "running,paused"}).out.find("italian"), std::string::npos);
    EXPECT_EQ(run({"job", "list", "--only", "failed"}).out.find("italian"), std::string::npos);
    EXPECT_EQ(run({"job", "list", "--only", "fine"}).exit_code, 2);
    const CommandResult mistaken = run({"job", "list", "--state", "failed"});
    EXPECT_EQ(mistaken.exit_code, 2);
    EXPECT_NE(mistaken.err.find("atoll job list --only failed"), std::string::npos) << mistaken.err;
}

TEST_F(CliProgramTest, FlagsOfAFacilityWinOverItsFile) {
    const std::string file = directory_.path() / "facility.yaml";
    ASSERT_TRUE(write_file_atomic(file,
                                  "transport: {kind: ssh, host: login, config_file: /etc/ssh}\n"
                                  "batch: {kind: local, slots: 1}\nwork_dir: /scratch\nlauncher: srun -n {ranks}\n")
                    .ok());
    const CommandResult added = run(
        {"facility", "add", "leonardo", "--file", file, "--local", "--slots", "4", "--launcher", "", "--env", "A=1"});
    EXPECT_EQ(added.exit_code, 0) << added.err;
    const Json batch = {{"kind", "local"}, {"slots", 4}};
    const Json wanted = {{"name", "leonardo"},
                         {"transport", {{"kind", "local"}}},
                         {"batch", batch},
                         {"work_dir", "/scratch"},
                         {"environment", {{"A", "1"}}}};
    EXPECT_EQ(get(posted_), wanted);
    const CommandResult changed = run({"facility", "set", "leonardo", "--file", file, "--work-dir", "/other"});
    EXPECT_EQ(changed.exit_code, 0) << changed.err;
    EXPECT_EQ(get(patch_).json()->at("work_dir"), "/other");
    EXPECT_EQ(get(patch_).json()->at("batch").at("slots"), 1);
}

TEST_F(CliProgramTest, AnEmptyTextTakesAFacilitysFieldAway) {
    const CommandResult result = run({"facility", "set", "leonardo", "--launcher", "", "--programs", ""});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(get(patch_).json().value(), (Json{{"launcher", nullptr}, {"programs", nullptr}}));
}

TEST_F(CliProgramTest, AJobOnStandardInputIsYamlOrJson) {
    for (const char* text : {"name: italian\nrounds: 3\n", R"({"name": "italian", "rounds": 3})"}) {
        set(posted_, nullptr);
        CommandOptions options;
        options.input = text;
        const CommandResult result = run_command(command({"job", "submit", "-"}), options).value();
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(get(posted_), (Json{{"name", "italian"}, {"rounds", 3}}));
    }
    const std::string file = directory_.path() / "job";
    ASSERT_TRUE(write_file_atomic(file, "name: italian\nrounds: 3\n").ok());
    set(posted_, nullptr);
    EXPECT_EQ(run({"job", "submit", file}).exit_code, 0);
    EXPECT_EQ(get(posted_), (Json{{"name", "italian"}, {"rounds", 3}})) << "YAML under whatever name";
    for (const char* text : {"{\"name\": 1,", "name: [1"}) {
        CommandOptions options;
        options.input = text;
        const CommandResult result = run_command(command({"job", "submit", "-"}), options).value();
        EXPECT_EQ(result.exit_code, 2) << text;
        EXPECT_NE(result.err.find("standard input"), std::string::npos) << result.err;
    }
}

TEST_F(CliProgramTest, FlagsOfAConversionAreRefusedWhereNothingIsConverted) {
    const auto model = directory_.path() / "model";
    std::filesystem::create_directories(model);
    ASSERT_TRUE(write_file_atomic(model / "model.safetensors", "").ok());
    for (const char* flag : {"--dtype", "--rope-factor", "--max-position-embeddings", "--converted"}) {
        const CommandResult result = run({"model", "import", "llama", model.string(), flag, "8"});
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_TRUE(result.err.starts_with("error: " + std::string(flag) + ": ")) << result.err;
        EXPECT_NE(result.err.find("only for models that are converted"), std::string::npos) << result.err;
    }
    const CommandResult described = run({"model", "push", "llama", model.string(), "--description", "an old one"});
    EXPECT_EQ(described.exit_code, 2) << described.err;
    EXPECT_TRUE(described.err.starts_with("error: --description: ")) << described.err;
}

TEST_F(CliProgramTest, WhoeverStopsWatchingIsToldWhatGoesOn) {
    const auto log = directory_.path() / "log";
    const auto pid =
        start_daemon(command({"job", "watch", "italian"}), {.log = log, .environment = {}, .directory = {}});
    ASSERT_TRUE(pid.ok()) << pid.error().message;
    watcher_is_.set_value(*pid);
    int status = 0;
    ASSERT_EQ(::waitpid(*pid, &status, 0), *pid);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    const std::string said = read_file(log).value();
    for (const char* line : {"job job1 runs on without you", "atoll job watch job1", "atoll job cancel job1"})
        EXPECT_NE(said.find(line), std::string::npos) << said;
}

}  // namespace
}  // namespace atl::cli
