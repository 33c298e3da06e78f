#pragma once

#include <cstdint>
#include <string>

#include "shared/base/file.h"
#include "shared/base/result.h"

namespace atl::http {

// A non-blocking socket that listens: by TCP at `address`, a number or a name, where port 0 is any free one; or at
// "unix:/path", in place of the socket of a process that has gone. Who may connect there, the directory's mode says.
Result<UniqueFd> listen_on(const std::string& address, std::uint16_t port);

// 0 when it listens nowhere, or at a path.
std::uint16_t bound_port(const UniqueFd& listening);

}  // namespace atl::http
