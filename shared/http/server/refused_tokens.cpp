#include "shared/http/server/refused_tokens.h"

#include <arpa/inet.h>

#include <array>

namespace atl::http {
namespace {

// Whoever has an address of IPv6 has all of its first 64 bits.
std::string network_of(const std::string& address) {
    std::array<char, sizeof(in6_addr)> bytes{};
    if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) return address;
    const bool is_of_ipv4 = std::string_view(bytes.data(), 8) == std::string_view("\0\0\0\0\0\0\0\0", 8);
    return is_of_ipv4 ? address : std::string(bytes.data(), 8);
}

}  // namespace

void RefusedTokens::begin_second() {
    const std::int64_t now = now_s_();
    if (now == second_) return;
    second_ = now;
    refused_.clear();
}

bool RefusedTokens::are_too_many(const std::string& address) {
    const std::lock_guard lock(mutex_);
    begin_second();
    const auto found = refused_.find(network_of(address));
    return found != refused_.end() && found->second >= max_;
}

void RefusedTokens::count(const std::string& address) {
    const std::lock_guard lock(mutex_);
    begin_second();
    ++refused_[network_of(address)];
}

}  // namespace atl::http
