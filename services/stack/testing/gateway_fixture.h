#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "services/stack/component.h"
#include "services/stack/gateway.h"
#include "services/stack/process.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"

namespace atl::stack {

using http::Access;
using http::Method;
using http::Request;
using http::Response;

inline const std::string kBlob = "0123456789abcdef";

inline std::string host_and_port(const std::string& url) {
    return url.substr(url.rfind('/') + 1);
}

// Whether the TLS server at HOST:PORT shows a certificate of this common name.
inline bool shows_certificate_of(const std::string& address, const std::string& name) {
    // Without -nameopt OpenSSL 3.0 writes "CN = name" and 3.5 "CN=name".
    const auto shown = run_command({"openssl", "s_client", "-nameopt", "RFC2253", "-connect", address});
    return shown.ok() && shown->out.find("subject=CN=" + name + "\n") != std::string::npos;
}

// One backend plays all four services behind a real nginx.
class GatewayTest : public ::testing::Test {
  protected:
    GatewayTest() : backend_([this](http::Server& server) { add_routes(server); }, backend_options()) {
        std::filesystem::create_directories(directory_.path() / "blobs/ab");
        check(write_file_atomic(directory_.path() / "blobs/ab/cd", kBlob).ok(), "cannot write the blob");
        const std::uint16_t port = choose_ports(0)->gateway;
        options_.listen = loopback(port);
        options_.registry = options_.store = options_.dispatch = options_.aggregation = host_and_port(backend_.url());
        options_.directory = directory_.path() / "nginx";
        options_.blobs = directory_.path() / "blobs";
        options_.access_log = directory_.path() / "access.log";
        start();
    }
    ~GatewayTest() override { (void)stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)); }

    void TearDown() override {
        if (HasFailure()) std::fprintf(stderr, "%s", read_file(directory_.path() / "nginx.log").value().c_str());
    }

    void start() const {
        const auto argv = prepare_gateway(options_);
        check(argv.ok(), argv.ok() ? "" : argv.error().message);
        check(start_recorded(*argv, pid_file(), directory_.path() / "nginx.log").ok(), "nginx does not start");
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!answers("http://" + options_.listen, "/healthz")) {
            check(std::chrono::steady_clock::now() < deadline, "nginx does not answer");
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }
    std::filesystem::path pid_file() const { return directory_.path() / "nginx.pid"; }

    static http::ServerOptions backend_options() {
        http::ServerOptions options;
        options.request_bytes_max = (16U << 20) + (256U << 10);
        options.refused_tokens_max = 30;  // so few that a slow machine asks for more in a second
        return options;
    }

    void add_routes(http::Server& server) {
        const auto describe = [](const Request& request) {
            return Response::json(200, {{"path", request.path},
                                        {"query", request.query},
                                        {"bytes", request.body.size()},
                                        {"gateway", request.header("x-atoll-gateway")},
                                        {"id", request.header("x-request-id")}});
        };
        server.route(Method::kGet, "/v1/things/:name", Access::open(), describe);
        server.route(Method::kPost, "/v1/things", Access::open(), describe);
        server.route(Method::kGet, "/v1/owned/:name", Access::roles({auth::Role::kOperator}), describe);
        server.route(Method::kPost, "/v1/models/:model/versions", Access::open(), describe);
        server.route(Method::kPut, "/v1/blobs/:digest", Access::open(), describe);
        server.route(Method::kGet, "/v1/blobs/:digest", Access::open(), [](const Request&) {
            return Response::empty(200).with("X-Accel-Redirect", "/internal/blobs/ab/cd").with("ETag", "\"cd\"");
        });
        server.route(Method::kGet, "/v1/dated", Access::open(),
                     [](const Request&) { return Response::empty(200).with("Date", "Sun, 06 Nov 1994 08:49:37 GMT"); });
        server.route(Method::kGet, "/v1/directories/:digest", Access::open(), [](const Request&) {
            return Response::empty(200).with("X-Accel-Redirect", "/internal/blobs/ab/");
        });
    }

    http::Client client() const {
        http::ClientOptions options;
        options.base_url = "http://" + options_.listen;
        options.token = backend_.token(auth::Role::kOperator);
        options.attempts_max = 1;
        return http::Client(options);
    }

    std::uint16_t port() const { return static_cast<std::uint16_t>(std::stoi(options_.listen.substr(10))); }

    TemporaryDirectory directory_;
    http::TestServer backend_;
    GatewayOptions options_;
};

}  // namespace atl::stack
