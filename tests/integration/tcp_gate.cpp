#include "tests/integration/tcp_gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "shared/base/result.h"

namespace atl {
namespace {

constexpr int kLookMs = 50;  // how often it looks whether to stop

sockaddr_in loopback_address(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

bool is_readable(int fd) {
    pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, kLookMs) > 0;
}

bool write_all(int fd, const char* bytes, ssize_t count) {
    while (count > 0) {
        const ssize_t written = ::send(fd, bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL);
        if (written <= 0) return false;
        bytes += written;
        count -= written;
    }
    return true;
}

// A connection through the gate. Both ends are closed when neither direction needs them any more: a client that sends
// to one which is only shut down, with bytes in it that nobody reads, would wait for ever.
struct Ends {
    UniqueFd near;
    UniqueFd far;
};

// One direction of a connection, until either end closes.
void copy(int from, int to, std::atomic<std::uint64_t>& bytes, const std::stop_token& stop) {
    std::array<char, 65536> buffer{};
    while (!stop.stop_requested()) {
        if (!is_readable(from)) continue;
        const ssize_t count = ::read(from, buffer.data(), buffer.size());
        bytes += static_cast<std::uint64_t>(std::max<ssize_t>(count, 0));
        if (count <= 0 || !write_all(to, buffer.data(), count)) break;
    }
    ::shutdown(to, SHUT_RDWR);
    ::shutdown(from, SHUT_RDWR);
}

}  // namespace

TcpGate::TcpGate(const std::string& target)
    : credentials_(target.substr(0, target.rfind('@') + 1)),
      target_port_(static_cast<std::uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback_address(0);
    check(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "bind");
}

TcpGate::~TcpGate() = default;

std::string TcpGate::address() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    check(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
    return credentials_ + "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

void TcpGate::open() {
    check(::listen(listener_.get(), SOMAXCONN) == 0, "listen");
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void TcpGate::run(const std::stop_token& stop) {
    std::vector<std::jthread> copies;
    while (!stop.stop_requested()) {
        if (!is_readable(listener_.get())) continue;
        const auto ends =
            std::make_shared<Ends>(Ends{UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                                        UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))});
        const sockaddr_in address = loopback_address(target_port_);
        if (::connect(ends->far.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) continue;
        copies.emplace_back([this, ends, stop] { copy(ends->near.get(), ends->far.get(), bytes_, stop); });
        copies.emplace_back([this, ends, stop] { copy(ends->far.get(), ends->near.get(), bytes_, stop); });
    }
}

}  // namespace atl
