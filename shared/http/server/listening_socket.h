#pragma once

#include <cstdint>
#include <string>

#include "shared/base/file.h"
#include "shared/base/result.h"

namespace atl::http {

// A non-blocking TCP socket that listens at `address`, a number or a name; port 0 is any free one.
Result<UniqueFd> listen_on(const std::string& address, std::uint16_t port);

// 0 when it listens nowhere.
std::uint16_t bound_port(const UniqueFd& listening);

}  // namespace atl::http
