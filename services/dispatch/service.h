#pragma once

#include <memory>

#include "services/dispatch/settings.h"
#include "services/dispatch/work/worker_pool.h"
#include "shared/service/service.h"

namespace atl::dispatch {

// What main() runs.
service::Definition definition();

// Adds the routes and starts the relay, the consumer of aggregation's answers, the event feed and the workers.
Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings);
// The same with a test's seams.
Result<std::unique_ptr<service::Running>> start_with(service::Context& context, Settings settings, WorkerSeams seams);

}  // namespace atl::dispatch
