#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "shared/base/check.h"

namespace atl {

// The closed set of expected failures. shared/http maps each to one HTTP status, the programs to exit codes.
enum class ErrorCode {
    kInvalidArgument,      // 400/422: the input is wrong; `field` names what
    kUnauthenticated,      // 401
    kPermissionDenied,     // 403; of a file: the system does not let us at it
    kNotFound,             // 404
    kConflict,             // 409: it exists already, or its state forbids this
    kPreconditionFailed,   // 412: If-Match or a fencing number is stale
    kTooLarge,             // 413
    kResourceExhausted,    // 429/503 with Retry-After; in the trainer: not enough memory
    kInsufficientStorage,  // 507: a disk is full; somebody has to make room
    kUnavailable,          // 503: try again later; nothing is known to have changed
    kInternal,             // 500
};

// The code's name as it stands in logs and in problem+json "type": "invalid-argument", "not-found", …
const char* to_string(ErrorCode code);
std::optional<ErrorCode> parse_error_code(std::string_view name);

// Whether the same may succeed later, without the caller changing anything: kUnavailable, kResourceExhausted and
// kInsufficientStorage.
bool is_transient(ErrorCode code);

// Who reports an error and why: what a program decides by beside the code. A problem document carries it by its name.
enum class Cause {
    kUnknown,         // this program itself, of anything else
    kService,         // a handler of the service that was asked: its answer to this very request
    kSite,            // a program of Atoll's at a site, about what it was asked for
    kJobEnded,        // a handler of dispatch: the job has ended, nobody waits for this any more
    kElsewhere,       // an HTTP answer that no handler made: a proxy, the gateway, a server without that route
    kUnreadable,      // the input cannot be parsed at all: not JSON, no body, a broken escape
    kNoConnection,    // a site is not reached, or the connection broke
    kAuthentication,  // a site refuses the login: somebody has to renew a key or a certificate
    kHostKey,         // a site's host key is not known, or is not the one that was pinned
    kBusy,            // a site, or our own limit, allows no further session just now
    kLoginsSpent,     // no further login is allowed before the time that the message says
    kBatchSystem,     // a site's batch system does not answer
    kWorkDirectory,   // a facility's work directory is not there
};

// The cause's name in problem documents: "service", "job-ended", …
const char* to_string(Cause cause);
std::optional<Cause> parse_cause(std::string_view name);

struct Error {
    ErrorCode code = ErrorCode::kInternal;
    std::string message;  // one sentence for people: what is wrong and what to do; it does not begin with the field
    std::string field;    // for people: the field, flag or file that is wrong, empty if none
    Cause cause = Cause::kUnknown;
};

// The same error with another cause.
Error with_cause(Error error, Cause cause);

// Whether the service or the site's program that was asked has answered this very request: its 404 says that there is
// no such thing, not that it could not be asked.
bool is_answer(const Error& error);

// Such an answer that it is not there: not the 404 of something that stands in the service's place.
bool is_absent(const Error& error);

// Whether what was handed over has been looked at and will not be taken, now or later: kInvalidArgument of something
// that could be read, kConflict, kTooLarge. All else that is not transient either (500, 401, 403, 404, the 400 of
// something on the way) can be a service that is broken, set up wrongly or not there: what must not be lost is kept and
// tried again.
bool is_refusal(const Error& error);

// "FIELD: MESSAGE", for logs and for people. A sentence that names its field itself ("cannot open /data: …") stays as
// it is.
std::string describe(const Error& error);

// A value or an Error. Reading the value of a failed Result is a programmer's error.
//
//   Result<int> parse_port(std::string_view text) {
//       ATOLL_TRY(const int port, parse_integer(text));  // returns its Error from here
//       if (port < 1 || port > 65535) return invalid_argument("port", "must be from 1 to 65535");
//       return port;
//   }
template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & { return require(), std::get<0>(state_); }
    const T& value() const& { return require(), std::get<0>(state_); }
    // By value, so that `for (auto& x : f().value())` does not outlive what it iterates over.
    T value() && { return require(), std::get<0>(std::move(state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const Error& error() const {
        check(!ok(), "error() of a Result that holds a value");
        return std::get<1>(state_);
    }

  private:
    void require() const {
        if (!ok()) check(false, "value() of a failed Result: " + std::get<1>(state_).message);
    }
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

    bool ok() const { return !error_; }
    explicit operator bool() const { return ok(); }
    const Error& error() const {
        check(!ok(), "error() of a Status that is ok");
        return *error_;
    }

  private:
    std::optional<Error> error_;
};

using Status = Result<void>;

inline Error invalid_argument(std::string field, std::string message) {
    return {ErrorCode::kInvalidArgument, std::move(message), std::move(field)};
}
// What was read is not JSON, or there is nothing to read: no part of it is at fault.
inline Error unreadable(std::string message) {
    return {ErrorCode::kInvalidArgument, std::move(message), {}, Cause::kUnreadable};
}
inline Error not_found(std::string message, std::string field = {}) {
    return {ErrorCode::kNotFound, std::move(message), std::move(field)};
}
inline Error conflict(std::string message, std::string field = {}) {
    return {ErrorCode::kConflict, std::move(message), std::move(field)};
}
inline Error permission_denied(std::string message) {
    return {ErrorCode::kPermissionDenied, std::move(message), {}};
}
inline Error unavailable(std::string message) {
    return {ErrorCode::kUnavailable, std::move(message), {}};
}
inline Error internal_error(std::string message) {
    return {ErrorCode::kInternal, std::move(message), {}};
}

}  // namespace atl

#define ATOLL_CONCAT_INNER(a, b) a##b
#define ATOLL_CONCAT(a, b) ATOLL_CONCAT_INNER(a, b)

// ATOLL_TRY(auto rows, connection.query(…));  declares rows, or returns the error from this function.
#define ATOLL_TRY(declaration, expression) \
    ATOLL_TRY_INNER(ATOLL_CONCAT(atoll_result_, __LINE__), declaration, expression)
#define ATOLL_TRY_INNER(name, declaration, expression) \
    auto name = (expression);                          \
    if (!name.ok()) return name.error();               \
    declaration = std::move(name).value()

// Returns the error of a Status (or of a Result whose value is not needed) from this function.
#define ATOLL_RETURN_IF_ERROR(expression)                                                      \
    do {                                                                                       \
        if (auto atoll_status = (expression); !atoll_status.ok()) return atoll_status.error(); \
    } while (false)
