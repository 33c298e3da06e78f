#pragma once

#include <string>
#include <vector>

#include "shared/base/result.h"

namespace atl::dispatch {

// Public host keys as sshd's .pub files and known_hosts have them, a line each: "ssh-ed25519 AAAA…", maybe after
// "@cert-authority ". Gives them without comments. kInvalidArgument names `field`.
Result<std::string> parse_host_key(const std::string& text, const std::string& field);

// Of each of them, as ssh and ssh-keygen show it: "ssh-ed25519 SHA256:…".
std::vector<std::string> fingerprints(const std::string& host_key);

}  // namespace atl::dispatch
