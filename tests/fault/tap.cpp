#include "tests/fault/tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <list>
#include <vector>

#include "shared/base/check.h"

namespace atl::fault {
namespace {

constexpr std::size_t kBytesAtOnce = 64U << 10;
constexpr int kStopWait_ms = 100;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

UniqueFd connect_to(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
    return fd;
}

struct Pair {
    UniqueFd client;
    UniqueFd server;
};

// What has come on one side goes to the other; false: the connection is over. It waits while the other side is slow,
// and so do all other connections.
bool pass_on(const UniqueFd& from, const UniqueFd& to, std::atomic<std::uint64_t>& count) {
    std::array<char, kBytesAtOnce> bytes;
    const ssize_t read = ::recv(from.get(), bytes.data(), bytes.size(), 0);
    if (read <= 0) return false;
    count += static_cast<std::uint64_t>(read);
    for (ssize_t sent = 0; sent < read;) {
        const ssize_t n = ::send(to.get(), bytes.data() + sent, static_cast<std::size_t>(read - sent), MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += n;
    }
    return true;
}

}  // namespace

Tap::Tap(const std::string& server)
    : server_port_(static_cast<std::uint16_t>(std::atoi(server.substr(server.rfind(':') + 1).c_str()))),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    check(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0, "bind");
    check(::listen(listener_.get(), SOMAXCONN) == 0, "listen");
    check(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Tap::~Tap() = default;

std::string Tap::address() const {
    return "http://127.0.0.1:" + std::to_string(port_);
}

void Tap::run(const std::stop_token& stop) {
    std::list<Pair> pairs;
    while (!stop.stop_requested()) {
        std::vector<pollfd> waited = {{listener_.get(), POLLIN, 0}};
        for (const Pair& pair : pairs) {
            waited.push_back({pair.client.get(), POLLIN, 0});
            waited.push_back({pair.server.get(), POLLIN, 0});
        }
        if (::poll(waited.data(), waited.size(), kStopWait_ms) <= 0) continue;
        auto at = waited.begin() + 1;
        for (auto pair = pairs.begin(); pair != pairs.end(); at += 2) {
            const bool goes_on = (at[0].revents == 0 || pass_on(pair->client, pair->server, bytes_)) &&
                                 (at[1].revents == 0 || pass_on(pair->server, pair->client, bytes_));
            pair = goes_on ? std::next(pair) : pairs.erase(pair);
        }
        if (waited.front().revents == 0) continue;
        Pair pair{UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)), connect_to(server_port_)};
        if (pair.client.valid() && pair.server.valid()) pairs.push_back(std::move(pair));
    }
}

}  // namespace atl::fault
