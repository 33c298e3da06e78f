#pragma once

#include "shared/service/service.h"

namespace atl::registry {

// What main() runs.
service::Definition definition();

}  // namespace atl::registry
