#pragma once

#include <span>

#include "shared/base/result.h"
#include "shared/base/words.h"

namespace atl {

// All error codes and all causes, in their order.
std::span<const Word<ErrorCode>> error_codes();
std::span<const Word<Cause>> causes();

// What docs/reference/errors.md says of them: one sentence without a full stop.
const char* meaning(ErrorCode code);
const char* meaning(Cause cause);

}  // namespace atl
