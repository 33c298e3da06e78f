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
    kInsufficientStorage,  // 507: the service's disk is full; somebody has to make room
    kUnavailable,          // 503: try again later; nothing is known to have changed
    kInternal,             // 500
};

// The code's name as it stands in logs and in problem+json "type": "invalid-argument", "not-found", …
const char* to_string(ErrorCode code);
std::optional<ErrorCode> parse_error_code(std::string_view name);

// Whether the same may succeed later, without the caller changing anything: kUnavailable, kResourceExhausted and
// kInsufficientStorage.
bool is_transient(ErrorCode code);

struct Error {
    ErrorCode code = ErrorCode::kInternal;
    std::string message;  // one sentence for people: what is wrong and what to do; it does not begin with the field
    std::string field;    // the field, flag or file that is wrong, empty if none
};

// Whether what was handed over has been looked at and will not be taken, now or later: kInvalidArgument that names a
// field, kConflict, kTooLarge. All else that is not transient either (500, 401, 403, 404, the 400 of something on the
// way) can be a service that is broken, set up wrongly or not there: what must not be lost is kept and tried again.
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
