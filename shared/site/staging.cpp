#include "shared/site/staging.h"

#include "shared/site/exit_status.h"

namespace atl::site {

StagingEnd judge_staging(const Error& error) {
    if (is_transient(error.code)) return StagingEnd::kTryLater;
    if (error.code == ErrorCode::kConflict && is_refusal(error)) return StagingEnd::kAbsent;
    if (is_absent(error)) return StagingEnd::kAbsent;
    if (error.code == ErrorCode::kInvalidArgument && is_refusal(error)) return StagingEnd::kBadInput;
    return StagingEnd::kUncertain;
}

int staging_exit_status(const Error& error) {
    switch (judge_staging(error)) {
        case StagingEnd::kTryLater:
            return kExitTryLater;
        case StagingEnd::kAbsent:
            return kExitAbsent;
        case StagingEnd::kBadInput:
            return kExitUsage;
        case StagingEnd::kUncertain:
            break;
    }
    return 1;
}

}  // namespace atl::site
