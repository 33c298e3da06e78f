#include "shared/http/server/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace atl::http {
namespace {

// A full backlog of a unix socket refuses at once, where TCP has the client try again: room for all who watch.
constexpr int kBacklog = 4096;

UniqueFd listen_at(const addrinfo& where) {
    UniqueFd fd(::socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd.valid()) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), where.ai_addr, where.ai_addrlen) == 0 && ::listen(fd.get(), kBacklog) == 0) return fd;
    return {};
}

Result<UniqueFd> listen_at_path(const std::string& path) {
    const auto refusal = [&path](const char* why) { return unavailable("cannot listen on " + path + ": " + why); };
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof where.sun_path) return refusal("the path is too long");
    path.copy(where.sun_path, path.size());
    const auto* address = reinterpret_cast<const sockaddr*>(&where);
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), address, sizeof where) == 0) return refusal("another process listens there");
    if (errno == ECONNREFUSED) ::unlink(path.c_str());
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::bind(fd.get(), address, sizeof where) != 0 || ::listen(fd.get(), kBacklog) != 0)
        return refusal(std::strerror(errno));
    return fd;
}

}  // namespace

Result<UniqueFd> listen_on(const std::string& address, std::uint16_t port) {
    if (address.starts_with(kUnixPrefix)) return listen_at_path(address.substr(kUnixPrefix.size()));
    const std::string service = std::to_string(port);
    const std::string refusal = "cannot listen on " + address + ":" + service + ": ";
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (const int failed = ::getaddrinfo(address.c_str(), service.c_str(), &hints, &found); failed != 0)
        return unavailable(refusal + ::gai_strerror(failed));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
        if (UniqueFd fd = listen_at(*one); fd.valid()) return fd;
    return unavailable(refusal + std::strerror(errno));
}

std::uint16_t bound_port(const UniqueFd& listening) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
    if (address.ss_family == AF_UNIX) return 0;
    // The port lies at the same place in an address of either family.
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace atl::http
