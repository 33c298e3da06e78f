#include "shared/base/result.h"

#include <cctype>
#include <string_view>

#include "shared/base/error_words.h"

namespace atl {
namespace {

constexpr Word<ErrorCode> kCodes[] = {
    {ErrorCode::kInvalidArgument, "invalid-argument"},
    {ErrorCode::kUnauthenticated, "unauthenticated"},
    {ErrorCode::kPermissionDenied, "permission-denied"},
    {ErrorCode::kNotFound, "not-found"},
    {ErrorCode::kConflict, "conflict"},
    {ErrorCode::kPreconditionFailed, "precondition-failed"},
    {ErrorCode::kTooLarge, "too-large"},
    {ErrorCode::kResourceExhausted, "resource-exhausted"},
    {ErrorCode::kInsufficientStorage, "insufficient-storage"},
    {ErrorCode::kUnavailable, "unavailable"},
    {ErrorCode::kInternal, "internal"},
};
static_assert(is_in_order(kCodes));

constexpr Word<Cause> kCauses[] = {
    {Cause::kUnknown, "unknown"},
    {Cause::kService, "service"},
    {Cause::kSite, "site"},
    {Cause::kJobEnded, "job-ended"},
    {Cause::kElsewhere, "elsewhere"},
    {Cause::kUnreadable, "unreadable"},
    {Cause::kNoConnection, "no-connection"},
    {Cause::kAuthentication, "authentication"},
    {Cause::kHostKey, "host-key"},
    {Cause::kBusy, "busy"},
    {Cause::kLoginsSpent, "logins-spent"},
    {Cause::kBatchSystem, "batch-system"},
    {Cause::kWorkDirectory, "work-directory"},
};
static_assert(is_in_order(kCauses));

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
    const char* const word = find_word(kCodes, code);
    return word == nullptr ? "internal" : word;
}

std::optional<ErrorCode> parse_error_code(std::string_view name) {
    return find_value(kCodes, name);
}

std::span<const Word<ErrorCode>> error_codes() {
    return kCodes;
}

bool is_transient(ErrorCode code) {
    return code == ErrorCode::kUnavailable || code == ErrorCode::kResourceExhausted ||
           code == ErrorCode::kInsufficientStorage;
}

const char* to_string(Cause cause) {
    const char* const word = find_word(kCauses, cause);
    return word == nullptr ? "unknown" : word;
}

std::optional<Cause> parse_cause(std::string_view name) {
    return find_value(kCauses, name);
}

std::span<const Word<Cause>> causes() {
    return kCauses;
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
