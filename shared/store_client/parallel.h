#pragma once

#include <cstddef>
#include <functional>

#include "shared/base/result.h"

namespace atl::store_client {

// Calls work(i, thread) for i below `count`, each once, on up to `threads` threads (0 <= thread < threads). After an
// error no further one begins; the first error is returned when all threads have ended.
Status for_each_parallel(std::size_t count, int threads, const std::function<Status(std::size_t, int)>& work);

}  // namespace atl::store_client
