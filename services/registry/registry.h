#pragma once

#include <string_view>

#include "shared/service/service.h"

namespace atl::registry {

// The registry as shared/service runs it; its own settings: {"topic_prefix": ""}.
service::Definition definition();

}  // namespace atl::registry
