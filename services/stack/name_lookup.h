#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <vector>

// What names stand for at this moment.
namespace atl::stack {

struct FreeAddresses {
    void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Of "host:port"; null where the name is not known now.
Addresses look_up(const std::string& address);

// The same in numbers, as "10.0.0.2:8080" or "[fd00::2]:8080", in order.
std::vector<std::string> look_up_numbers(const std::string& address);

}  // namespace atl::stack
