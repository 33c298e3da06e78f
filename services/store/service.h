#pragma once

#include <memory>

#include "services/store/settings.h"
#include "shared/service/service.h"

namespace atl::store {

// Adds the routes and starts the sweep and the scrubber.
Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings);
// What main() runs.
service::Definition definition();

}  // namespace atl::store
