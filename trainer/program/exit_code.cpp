#include "shared/run_settings/exit_codes.h"
#include "trainer/program/cli.h"

namespace atl::program {

int exit_code(const Status& status) {
    if (status.ok()) return 0;
    switch (status.error().code) {
        case ErrorCode::kResourceExhausted:  // memory
            return run_settings::kExitNotEnoughMemory;
        case ErrorCode::kTooLarge:  // the loss or its gradient, see Trainer::not_finite()
            return run_settings::kExitNotFinite;
        case ErrorCode::kInvalidArgument:
        case ErrorCode::kNotFound:
        case ErrorCode::kPermissionDenied:  // of a file that the user gave
        case ErrorCode::kConflict:
            return run_settings::kExitBadInput;
        default:
            return 1;
    }
}

}  // namespace atl::program
