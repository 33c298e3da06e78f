#include "trainer/program/cli.h"

namespace atl::program {

int exit_code(const Status& status) {
    if (status.ok()) return 0;
    switch (status.error().code) {
        case ErrorCode::kResourceExhausted:  // of memory, or of a file: a full disk
            return status.error().field.empty() || status.error().field == "memory" ? 3 : 1;
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
