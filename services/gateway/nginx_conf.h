#pragma once

#include <string_view>

namespace atl::gateway {

// nginx.conf of this folder, with its @PLACEHOLDERS@.
std::string_view nginx_conf();

}  // namespace atl::gateway
