#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"

namespace atl::dispatch {

// What a login by ssh depends on here, as `ssh -G` names it: it is compared, to see whether another try can end
// otherwise.
struct Credentials {
    std::string state;                      // files with size, time and inode; the agent's keys
    std::vector<std::string> certificates;  // those of the files that are there
    std::set<std::string> keys;             // private ones that ssh would try, whether they are there or not

    bool operator==(const Credentials& other) const { return state == other.state; }
};

Credentials read_credentials(const TransportSpec& spec);

// Where a login arrives, as ssh's configuration has it; of the host's name alone where ssh cannot say.
struct LoginTarget {
    std::string user;
    std::string host;
    std::string port = "22";
};
LoginTarget resolve_target(const TransportSpec& spec);
std::string to_text(const LoginTarget& target);  // "USER@HOST:PORT"

// "certificate FILE: valid from … to …" of each.
std::string describe_certificates(const Credentials& credentials);
// When the first of them ends (Unix seconds); nothing: there is none, or none that ends.
std::optional<std::int64_t> certificates_end_s(const Credentials& credentials);

}  // namespace atl::dispatch
