#include "services/stack/name_lookup.h"

#include <sys/socket.h>

#include <array>
#include <set>

namespace atl::stack {

Addresses look_up(const std::string& address) {
    const auto colon = address.rfind(':');
    if (colon == std::string::npos) return nullptr;
    std::string host = address.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    return ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) == 0 ? Addresses(found) : nullptr;
}

std::vector<std::string> look_up_numbers(const std::string& address) {
    std::set<std::string> numbers;
    const Addresses found = look_up(address);
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        std::array<char, NI_MAXHOST> host{};
        if (::getnameinfo(one->ai_addr, one->ai_addrlen, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
            continue;
        const std::string text = host.data();
        numbers.insert((one->ai_family == AF_INET6 ? "[" + text + "]" : text) + address.substr(address.rfind(':')));
    }
    return {numbers.begin(), numbers.end()};
}

}  // namespace atl::stack
