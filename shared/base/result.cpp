#include "shared/base/result.h"

namespace atl {

const char* to_string(ErrorCode code) {
    switch (code) {
        case ErrorCode::kInvalidArgument:
            return "invalid-argument";
        case ErrorCode::kUnauthenticated:
            return "unauthenticated";
        case ErrorCode::kPermissionDenied:
            return "permission-denied";
        case ErrorCode::kNotFound:
            return "not-found";
        case ErrorCode::kConflict:
            return "conflict";
        case ErrorCode::kPreconditionFailed:
            return "precondition-failed";
        case ErrorCode::kTooLarge:
            return "too-large";
        case ErrorCode::kResourceExhausted:
            return "resource-exhausted";
        case ErrorCode::kUnavailable:
            return "unavailable";
        case ErrorCode::kInternal:
            return "internal";
    }
    return "internal";
}

}  // namespace atl
