#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "shared/pg/pg.h"

namespace atl::dispatch {

// Forgets, of jobs that ended `days` ago, what nobody is shown but as history: their events, and of each task's
// attempts all but the newest. In batches, job by job, until none is left or `stop`; `on_batch` is told how many rows
// of which table went. Several replicas may do it at once.
Status prune_history(pg::Pool& pool, std::int64_t days, const std::stop_token& stop,
                     const std::function<void(const std::string& table, std::int64_t rows)>& on_batch);

}  // namespace atl::dispatch
