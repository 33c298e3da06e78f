#include "shared/base/result.h"

#include <cctype>
#include <string_view>

namespace atl {
namespace {

// Whether a message has the field as a word of its own; one without a subject ("must be a BCP 47 language tag") is told
// of its field in any case. What stands behind ", got " is somebody's value and no name.
bool names_field(std::string_view message, std::string_view field) {
    if (message.starts_with("must ") || message.starts_with("is ")) return false;
    message = message.substr(0, message.find(", got "));
    const auto is_in_word = [&](std::size_t at) {
        return at < message.size() && (std::isalnum(static_cast<unsigned char>(message[at])) != 0 ||
                                       std::string_view("_-./").find(message[at]) != std::string_view::npos);
    };
    for (std::size_t at = message.find(field); at != std::string_view::npos; at = message.find(field, at + 1))
        if ((at == 0 || !is_in_word(at - 1)) && !is_in_word(at + field.size())) return true;
    return false;
}

}  // namespace

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
        case ErrorCode::kInsufficientStorage:
            return "insufficient-storage";
        case ErrorCode::kUnavailable:
            return "unavailable";
        case ErrorCode::kInternal:
            return "internal";
    }
    return "internal";
}

std::optional<ErrorCode> parse_error_code(std::string_view name) {
    for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code)
        if (name == to_string(static_cast<ErrorCode>(code))) return static_cast<ErrorCode>(code);
    return std::nullopt;
}

bool is_transient(ErrorCode code) {
    return code == ErrorCode::kUnavailable || code == ErrorCode::kResourceExhausted ||
           code == ErrorCode::kInsufficientStorage;
}

const char* to_string(Cause cause) {
    switch (cause) {
        case Cause::kUnknown:
            return "unknown";
        case Cause::kService:
            return "service";
        case Cause::kSite:
            return "site";
        case Cause::kJobEnded:
            return "job-ended";
        case Cause::kElsewhere:
            return "elsewhere";
        case Cause::kUnreadable:
            return "unreadable";
        case Cause::kNoConnection:
            return "no-connection";
        case Cause::kAuthentication:
            return "authentication";
        case Cause::kHostKey:
            return "host-key";
        case Cause::kBusy:
            return "busy";
        case Cause::kLoginsSpent:
            return "logins-spent";
        case Cause::kBatchSystem:
            return "batch-system";
        case Cause::kWorkDirectory:
            return "work-directory";
    }
    return "unknown";
}

std::optional<Cause> parse_cause(std::string_view name) {
    for (int cause = 0; cause <= static_cast<int>(Cause::kWorkDirectory); ++cause)
        if (name == to_string(static_cast<Cause>(cause))) return static_cast<Cause>(cause);
    return std::nullopt;
}

Error with_cause(Error error, Cause cause) {
    error.cause = cause;
    return error;
}

bool is_answer(const Error& error) {
    return error.cause == Cause::kService || error.cause == Cause::kSite || error.cause == Cause::kJobEnded;
}

bool is_absent(const Error& error) {
    return error.code == ErrorCode::kNotFound && is_answer(error);
}

bool is_refusal(const Error& error) {
    if (error.cause == Cause::kElsewhere || error.cause == Cause::kUnreadable) return false;
    return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kConflict ||
           error.code == ErrorCode::kTooLarge;
}

std::string describe(const Error& error) {
    if (error.field.empty() || names_field(error.message, error.field)) return error.message;
    return error.field + ": " + error.message;
}

}  // namespace atl
