#pragma once

#include <cstddef>
#include <functional>

#include "shared/base/result.h"

namespace atl {

// Calls work(i, thread) for i below `count`, each once, on up to `threads` threads (0 <= thread < threads; at least the
// one that calls). After an error no further one begins; the first error is returned when all threads have ended. What
// `work` throws is its error.
Status for_each_parallel(std::size_t count, int threads, const std::function<Status(std::size_t, int)>& work);

}  // namespace atl
