#include "shared/http/testing/test_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "shared/base/file.h"
#include "shared/log/log.h"

namespace atl::http {

TestServer::TestServer(const std::function<void(Server&)>& routes, ServerOptions options, auth::KeyPair keys)
    : keys_(std::move(keys)),
      server_(std::move(options), auth::Verifier::from_pem(keys_.public_pem).value(), metrics_) {
    spdlog::set_level(spdlog::level::err);  // a line a request would bury the tests' own output
    routes(server_);
    const Access everybody =
        Access::roles({auth::Role::kAdmin, auth::Role::kOperator, auth::Role::kViewer, auth::Role::kFacility});
    server_.route(Method::kGet, "/v1/token", everybody, [](const Request&) { return Response::empty(); });
    const Status started = server_.start();
    check(started.ok(), started.ok() ? "" : started.error().message);
}

std::string TestServer::url() const {
    return "http://127.0.0.1:" + std::to_string(server_.port());
}

std::string TestServer::token(auth::Role role) const {
    auth::Principal principal{.subject = "tester", .role = role};
    if (role == auth::Role::kFacility) principal.scope = auth::TaskScope{"here", "job", "task", "1", {}, "model"};
    return token(principal);
}

std::string TestServer::token(const auth::Principal& principal) const {
    return auth::Issuer::from_pem(keys_.private_pem).value().issue(principal, std::chrono::hours(1)).value();
}

Client TestServer::client(auth::Role role) const {
    ClientOptions options;
    options.base_url = url();
    options.token = token(role);
    options.attempts_max = 1;
    return Client(options);
}

Client TestServer::client_without_token() const {
    ClientOptions options;
    options.base_url = url();
    options.attempts_max = 1;
    return Client(options);
}

namespace {

UniqueFd connect_and_send(std::uint16_t port, const std::string& bytes, std::size_t piece_bytes) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{20, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
    for (std::size_t sent = 0; sent < bytes.size();) {
        const std::size_t size = std::min(piece_bytes, bytes.size() - sent);
        const ssize_t count = ::send(fd.get(), bytes.data() + sent, size, MSG_NOSIGNAL);
        if (count <= 0) break;
        sent += static_cast<std::size_t>(count);
    }
    return fd;
}

}  // namespace

std::string exchange_raw(std::uint16_t port, const std::string& bytes, const std::string& until,
                         std::size_t piece_bytes) {
    const UniqueFd fd = connect_and_send(port, bytes, piece_bytes);
    std::string answer;
    char block[4096];
    while (until.empty() || answer.find(until) == std::string::npos) {
        const ssize_t count = ::recv(fd.get(), block, sizeof block, 0);
        if (count <= 0) break;
        answer.append(block, static_cast<std::size_t>(count));
    }
    return answer;
}

void leave_early(std::uint16_t port, const std::string& bytes) {
    connect_and_send(port, bytes, SIZE_MAX);
}

}  // namespace atl::http
