#include "shared/service/service.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "shared/base/file.h"
#include "shared/http/client/client.h"
#include "tests/integration/test_stack.h"

namespace atl::service {
namespace {

constexpr pg::Migration kMigrations[] = {{1, "CREATE TABLE things (name text PRIMARY KEY)"}};

// Ready when the file `ready` exists beside its configuration. "ready.asked" has a byte for each time it was asked; it
// does not answer while "ready.hangs" exists.
class ProbeRunning final : public Running {
  public:
    explicit ProbeRunning(std::filesystem::path file) : file_(std::move(file)) {}
    Status ready() override {
        std::ofstream(file_.string() + ".asked", std::ios::app) << "x";
        while (std::filesystem::exists(file_.string() + ".hangs")) std::this_thread::yield();
        if (!std::filesystem::exists(file_)) return unavailable("not warm yet");
        return {};
    }

  private:
    std::filesystem::path file_;
};

struct ProbeSettings {
    std::string ready_file;
};

Result<ProbeSettings> parse_probe_settings(const json::Json& own) {
    json::ObjectReader reader(own, "probe");
    ProbeSettings settings{reader.required_string("ready_file")};
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return settings;
}

Result<std::unique_ptr<Running>> start_probe(Context& context, const ProbeSettings& settings) {
    context.server.route(http::Method::kGet, "/v1/count", http::Access::roles({auth::Role::kViewer}),
                         [&pool = context.pool](const http::Request&) {
                             const auto rows = (*pool.acquire().value()).query("SELECT count(*) AS n FROM things");
                             return http::Response::json(200, {{"n", rows.value().integer(0, "n")}});
                         });
    return std::unique_ptr<Running>(std::make_unique<ProbeRunning>(settings.ready_file));
}

Definition probe() {
    return {.name = "probe",
            .migrations = kMigrations,
            .openapi = R"({"openapi":"3.1.0"})",
            .metrics = {},
            .configure = configure_with(parse_probe_settings, start_probe)};
}

int run_words(std::vector<std::string> words) {
    words.insert(words.begin(), "atoll-probe");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return run(static_cast<int>(argv.size()), argv.data(), probe());
}

class ServiceTest : public StackTest {
  protected:
    // A configuration file for the stack's database; its path.
    std::string configure(const std::string& postgres) {
        keys_ = auth::generate_keys().value();
        port_ = free_port();
        const auto key = directory_.path() / "public.pem";
        check(write_file_atomic(key, keys_.public_pem).ok(), "key");
        const json::Json config = {{"port", port_},
                                   {"postgres", postgres},
                                   {"postgres_connections", 7},
                                   {"kafka_brokers", "127.0.0.1:1"},
                                   {"public_key_file", key.string()},
                                   {"probe", {{"ready_file", (directory_.path() / "ready").string()}}}};
        const auto file = directory_.path() / "probe.yaml";
        check(write_file_atomic(file, config.dump()).ok(), "config");
        return file.string();
    }

    http::Client client(bool with_token) {
        http::ClientOptions options;
        options.base_url = "http://127.0.0.1:" + std::to_string(port_);
        options.attempts_max = 1;
        if (with_token)
            options.token = auth::Issuer::from_pem(keys_.private_pem)
                                .value()
                                .issue({.subject = "v", .role = auth::Role::kViewer}, std::chrono::hours(1))
                                .value();
        return http::Client(options);
    }

    TemporaryDirectory directory_;
    auth::KeyPair keys_;
    std::uint16_t port_ = 0;
};

TEST_F(ServiceTest, AServiceBecomesReadyAnswersAndEndsOnSigterm) {
    const std::string config = configure(stack().create_database());
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv("ATOLL_REVISION", "0123456789ab", 1);
        ::_exit(run_words({"--config", config}));
    }
    auto open = client(false);
    EXPECT_TRUE(eventually([&] {
        const auto answer = open.call(http::Method::kGet, "/healthz");
        return answer.ok() && answer->status == 200;
    }));
    const auto unready = [&] { return open.call(http::Method::kGet, "/readyz").value(); };
    EXPECT_EQ(unready().status, 503);
    EXPECT_TRUE(eventually([&] { return unready().body.find("not warm yet") != std::string::npos; }));
    ASSERT_TRUE(write_file_atomic(directory_.path() / "ready", "").ok());
    EXPECT_TRUE(eventually([&] { return unready().status == 200; }));
    EXPECT_EQ(open.get_json("/openapi.json").value()["openapi"], "3.1.0");
    EXPECT_EQ(client(true).get_json("/v1/token").value()["subject"], "v");
    EXPECT_NE(open.call(http::Method::kGet, "/metrics")
                  .value()
                  .body.find("atoll_build_info{revision=\"0123456789ab\",version=\""),
              std::string::npos);
    EXPECT_EQ(open.call(http::Method::kGet, "/v1/count").value().status, 401);
    EXPECT_EQ(client(true).get_json("/v1/count").value()["n"], 0);
    const std::string served = open.call(http::Method::kGet, "/metrics").value().body;
    for (const char* line : {"atoll_pg_pool_connections_max 7\n", "atoll_pg_pool_waiters 0\n",
                             "atoll_pg_pool_wait_seconds_total ", "atoll_ready{dependency=\"postgres\"} 1\n"})
        EXPECT_NE(served.find(std::string("\n") + line), std::string::npos) << line << served;
    EXPECT_EQ(served.find("\natoll_pg_pool_connections{state=\"idle\"} 0\n"), std::string::npos)
        << "it counted with one, and gave it back";
    ::kill(child, SIGTERM);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(ServiceTest, WhoeverAsksForReadinessWaitsForNobodyAndCausesNoWork) {
    const std::string config = configure(stack().create_database());
    ASSERT_TRUE(write_file_atomic(directory_.path() / "ready", "").ok());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(run_words({"--config", config}));
    auto open = client(false);
    const auto is_ready = [&] {
        const auto answer = open.call(http::Method::kGet, "/readyz");
        return answer.ok() && answer->status == 200;
    };
    EXPECT_TRUE(eventually(is_ready));
    const auto asked = [&] { return std::filesystem::file_size(directory_.path() / "ready.asked"); };
    ASSERT_TRUE(write_file_atomic(directory_.path() / "ready.hangs", "").ok());
    const auto before = asked();
    ASSERT_TRUE(eventually([&] { return asked() > before; }));  // this one hangs
    const auto hanging = asked();
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(open.call(http::Method::kGet, "/readyz").ok());
    EXPECT_EQ(asked(), hanging);
    std::filesystem::remove(directory_.path() / "ready.hangs");
    EXPECT_TRUE(eventually(is_ready));
    ::kill(child, SIGTERM);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A port of loopback that takes connections and closes them: a database that does not come up.
class DeadDatabase {
  public:
    DeadDatabase() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address_;
        auto* const address = reinterpret_cast<sockaddr*>(&address_);
        check(::bind(listener_.get(), address, size) == 0 && ::listen(listener_.get(), SOMAXCONN) == 0, "listen");
        check(::getsockname(listener_.get(), address, &size) == 0, "getsockname");
    }
    // Without encryption one attempt is one connection.
    std::string conninfo() const {
        return "host=127.0.0.1 user=x dbname=x sslmode=disable gssencmode=disable port=" +
               std::to_string(ntohs(address_.sin_port));
    }
    // Waits for a connection and closes it; false when none came within 30 s.
    bool turn_one_away() const {
        pollfd one{.fd = listener_.get(), .events = POLLIN, .revents = 0};
        return ::poll(&one, 1, 30'000) == 1 && UniqueFd(::accept(listener_.get(), nullptr, nullptr)).valid();
    }

  private:
    UniqueFd listener_;
    sockaddr_in address_{};
};

TEST_F(ServiceTest, SigtermEndsAServiceThatWaitsForItsDatabase) {
    const DeadDatabase database;
    const std::string config = configure(database.conninfo());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(run_words({"--config", config}));
    EXPECT_TRUE(database.turn_one_away());
    EXPECT_TRUE(database.turn_one_away()) << "it waited once and tried again";
    ::kill(child, SIGTERM);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(ServiceTest, AConfigurationCanBeCheckedWithoutADatabase) {
    const std::string config = configure("host=/nowhere");
    EXPECT_EQ(run_words({"--config", config, "--check-config"}), 0);
    ASSERT_TRUE(write_file_atomic(directory_.path() / "public.pem", "no key").ok());
    EXPECT_EQ(run_words({"--config", config, "--check-config"}), 2);
}

TEST(ServiceConfigurationTest, AWrongKeyOfTheServicesOwnEndsItByNameBeforeAnythingBegins) {
    const TemporaryDirectory directory;
    const auto key = directory.path() / "public.pem";
    ASSERT_TRUE(write_file_atomic(key, auth::generate_keys()->public_pem).ok());
    const auto file = (directory.path() / "probe.yaml").string();
    json::Json config = {{"port", 0},
                         {"postgres", "host=" + directory.path().string()},
                         {"kafka_brokers", "127.0.0.1:1"},
                         {"public_key_file", key.string()}};
    const auto said_by = [&](std::vector<std::string> words) {
        EXPECT_TRUE(write_file_atomic(file, config.dump()).ok());
        testing::internal::CaptureStderr();
        words.insert(words.begin(), {"--config", file});
        const int status = run_words(words);
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(status, 2) << said;
        return said;
    };
    for (const auto& [key_of_own, own] :
         std::vector<std::pair<const char*, json::Json>>{{"ready_file", nullptr},
                                                         {"ready_file", {{"ready_file", 1}}},
                                                         {"other", {{"ready_file", "x"}, {"other", 3}}}}) {
        config["probe"] = own;
        const std::string name = std::string("probe.") + key_of_own + ": ";
        EXPECT_NE(said_by({"--check-config"}).find("atoll-probe: " + name), std::string::npos) << name;
        EXPECT_NE(said_by({}).find(name), std::string::npos) << "the log names it too: " << name;
    }
    config["probe"] = {{"ready_file", "x"}};
    config["public_key_file"] = (directory.path() / "none.pem").string();
    for (const std::vector<std::string>& words : {std::vector<std::string>{"--check-config"}, {}})
        EXPECT_NE(said_by(words).find("public_key_file: "), std::string::npos);
}

TEST(ServiceArgumentsTest, AWrongCommandLineOrFileEndsWithTwo) {
    EXPECT_EQ(run_words({}), 2);
    EXPECT_EQ(run_words({"--nonsense"}), 2);
    EXPECT_EQ(run_words({"--config", "/nonexistent.yaml"}), 2);
    EXPECT_EQ(run_words({"--help"}), 0);
    EXPECT_EQ(run_words({"--version"}), 0);
}

}  // namespace
}  // namespace atl::service
