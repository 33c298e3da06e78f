#include "trainer/program/cli.h"

namespace atl::program {

int exit_code(const Status& status) {
    if (status.ok()) return 0;
    switch (status.error().code) {
        case ErrorCode::kResourceExhausted:  // memory
            return 3;
        case ErrorCode::kInvalidArgument:
        case ErrorCode::kNotFound:
        case ErrorCode::kPermissionDenied:  // of a file that the user gave
        case ErrorCode::kConflict:
            return 2;  // which nobody tries again
        default:
            return 1;
    }
}

}  // namespace atl::program
