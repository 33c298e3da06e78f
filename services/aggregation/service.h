#pragma once

#include "shared/service/service.h"

namespace atl::aggregation {

// What main() runs.
service::Definition definition();

}  // namespace atl::aggregation
