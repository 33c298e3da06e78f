#pragma once

#include <string_view>

#include "shared/service/service.h"

namespace atl::registry {

// The registry as shared/service runs it.
service::Definition definition();

}  // namespace atl::registry
