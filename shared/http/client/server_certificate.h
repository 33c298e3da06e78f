#pragma once

#include <chrono>
#include <string>

#include "shared/base/result.h"

namespace atl::http {

// The certificate that a TLS server shows, as PEM, whoever vouches for it. Nothing is sent to it. `url`: "https://…".
// kUnavailable: no TLS server answers there.
Result<std::string> server_certificate(const std::string& url, std::chrono::milliseconds time_max);

}  // namespace atl::http
