#pragma once

#include "shared/base/result.h"

namespace atl::site {

// What an error of staging a version means to whoever waits for it, wherever the staging runs.
enum class StagingEnd {
    kTryLater,   // the store, or this machine, is in trouble that may pass
    kAbsent,     // the store itself says that there is no such version, or its bytes are not the version's
    kBadInput,   // the store has looked at the request and calls it wrong
    kUncertain,  // anything else: it may be about something on the way
};
StagingEnd judge_staging(const Error& error);

// What `atoll stage` exits with.
int staging_exit_status(const Error& error);

}  // namespace atl::site
