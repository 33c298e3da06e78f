#pragma once

#include <span>

#include "shared/base/result.h"
#include "shared/base/words.h"

namespace atl {

// All error codes and all causes, in their order.
std::span<const Word<ErrorCode>> error_codes();
std::span<const Word<Cause>> causes();

}  // namespace atl
