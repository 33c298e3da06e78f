#include "services/stack/gateway_watch.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "services/stack/testing/gateway_fixture.h"
#include "shared/base/subprocess.h"

namespace atl::stack {
namespace {

// A real nginx with the watch beside it.
class GatewayWatchTest : public GatewayTest {
  protected:
    void TearDown() override {
        watching_ = {};
        GatewayTest::TearDown();
    }
    void restart_with_watch() {
        ASSERT_TRUE(stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)).ok());
        auto watch = GatewayWatch::make(options_);
        ASSERT_TRUE(watch.ok()) << watch.error().message;
        watch_ = std::move(*watch);
        start();
        watching_ =
            std::jthread([this](const std::stop_token& stop) { watch_->run(running_process(pid_file())->pid, stop); });
    }
    std::string file(const char* name) const { return (directory_.path() / name).string(); }
    void make_certificate(const std::string& name) {
        const auto made =
            run_command({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                         "-keyout", file("new-key.pem"), "-out", file("new-cert.pem"), "-days", "2", "-subj",
                         "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1"});
        ASSERT_TRUE(made.ok() && made->exit_code == 0) << made->err;
        // One after the other, as tools replace them: for a moment they do not fit.
        std::filesystem::rename(file("new-cert.pem"), file("cert.pem"));
        std::filesystem::rename(file("new-key.pem"), file("key.pem"));
    }
    static bool within(std::chrono::seconds time, const std::function<bool()>& holds) {
        for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
            if (holds()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return false;
    }

    static UniqueFd listen_at(std::uint16_t port) {
        UniqueFd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int yes = 1;
        ::setsockopt(listening.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(::listen(listening.get(), 4), 0);
        return listening;
    }

    std::unique_ptr<GatewayWatch> watch_;
    std::jthread watching_;
};

TEST_F(GatewayWatchTest, ARenewedCertificateIsTakenWithoutABrokenDownload) {
    make_certificate("before");
    // Too large for what nginx and the kernel keep of an answer.
    ASSERT_TRUE(write_file_atomic(directory_.path() / "blobs/ab/cd", std::string(64U << 20, 'x')).ok());
    options_.public_listen = loopback(choose_ports(0)->gateway);
    options_.certificate = file("cert.pem");
    options_.certificate_key = file("key.pem");
    restart_with_watch();
    ASSERT_TRUE(shows_certificate_of(options_.public_listen, "before"));
    std::promise<void> renewed;
    std::atomic<bool> has_begun = false;
    auto download = std::async(std::launch::async, [&] {
        http::ClientOptions options;
        options.base_url = "https://" + options_.public_listen;
        options.token = backend_.token(auth::Role::kOperator);
        options.ca_file = file("cert.pem");
        options.timeout = std::chrono::minutes(5);
        options.attempts_max = 1;
        std::size_t bytes = 0;
        http::CallOptions call;
        call.sink = [&, seen = renewed.get_future().share()](std::string_view piece) {
            bytes += piece.size();
            if (!has_begun.exchange(true)) seen.wait();
            return true;
        };
        const auto answer = http::Client(options).call(Method::kGet, "/store/v1/blobs/abcd", {}, call);
        EXPECT_TRUE(answer.ok()) << answer.error().message;
        return bytes;
    });
    EXPECT_TRUE(within(std::chrono::seconds(60), [&] { return has_begun.load(); }));
    make_certificate("after");
    EXPECT_TRUE(
        within(std::chrono::seconds(60), [&] { return shows_certificate_of(options_.public_listen, "after"); }));
    renewed.set_value();
    EXPECT_EQ(download.get(), 64U << 20);
}

TEST_F(GatewayWatchTest, ARequestForAServiceThatIsAwayIsAnsweredOnceItIsBack) {
    const std::uint16_t port = choose_ports(0)->gateway;
    options_.registry = loopback(port);
    options_.wait_s = 60;
    restart_with_watch();
    const auto ask = [this](Method method, const std::string& path, const std::string& body) {
        return std::async(std::launch::async,
                          [this, method, path, body] { return client().call(method, path, body, {}).value(); });
    };
    auto read = ask(Method::kGet, "/registry/v1/things/a", {});
    auto written = ask(Method::kPost, "/registry/v1/things", "{}");
    EXPECT_EQ(client().call(Method::kGet, "/registry/readyz")->status, 503) << "readiness waits for nothing";
    EXPECT_EQ(client().get_json("/store/v1/things/b").value()["path"], "/v1/things/b");
    EXPECT_EQ(read.wait_for(std::chrono::seconds(1)), std::future_status::timeout);
    http::ServerOptions back = backend_options();
    back.port = port;
    std::atomic<int> posts = 0;
    const http::TestServer service(
        [&](http::Server& server) {
            server.route(Method::kGet, "/v1/things/:name", Access::open(),
                         [](const Request& request) { return Response::json(200, {{"path", request.path}}); });
            server.route(Method::kPost, "/v1/things", Access::open(), [&](const Request&) {
                ++posts;
                return Response::json(200, {{"made", true}});
            });
        },
        back, backend_.keys());
    EXPECT_EQ(read.get().json().value()["path"], "/v1/things/a");
    EXPECT_EQ(written.get().json().value()["made"], true);
    EXPECT_EQ(posts, 1);
}

TEST_F(GatewayWatchTest, ARequestThatAServiceTookAndDroppedIsAnsweredByTheNext) {
    const std::uint16_t port = choose_ports(0)->gateway;
    options_.registry = loopback(port);
    options_.wait_s = 60;
    restart_with_watch();
    std::optional<UniqueFd> ending = listen_at(port);
    auto written = std::async(std::launch::async,
                              [&] { return client().call(Method::kPut, "/registry/v1/things/a", "{}", {}).value(); });
    for (int i = 0; i < 2; ++i)  // nginx' own, and that of the request that waits
        EXPECT_TRUE(UniqueFd(::accept(ending->get(), nullptr, nullptr)).valid());
    ending.reset();
    http::ServerOptions back = backend_options();
    back.port = port;
    const http::TestServer service(
        [](http::Server& server) {
            server.route(Method::kPut, "/v1/things/:name", Access::open(),
                         [](const Request& request) { return Response::json(200, {{"path", request.path}}); });
        },
        back, backend_.keys());
    const http::ClientResponse answer = written.get();
    EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(GatewayWatchTest, ARequestForAServiceThatStaysAwayIsRefusedAfterTheWait) {
    options_.registry = loopback(choose_ports(0)->gateway);
    options_.wait_s = 1;
    restart_with_watch();
    // The second, too: that the first waited in vain says nothing of it.
    for (int i = 0; i < 2; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        const auto answer = client().call(Method::kGet, "/registry/v1/things/a").value();
        EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
        EXPECT_EQ(answer.status, 503);
        EXPECT_EQ(answer.headers.count("retry-after"), 1U);
    }
}

}  // namespace
}  // namespace atl::stack
