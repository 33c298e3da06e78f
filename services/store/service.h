#pragma once

#include <memory>
#include <span>

#include "services/store/settings.h"
#include "shared/service/service.h"

namespace atl::store {

// The schema of the service, for main() and for tests that run it in their own process.
std::span<const pg::Migration> migrations();
Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings);
service::Definition definition();

}  // namespace atl::store
