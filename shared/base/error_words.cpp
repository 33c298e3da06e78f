#include "shared/base/error_words.h"

#include "shared/base/check.h"

namespace atl {
namespace {

constexpr Word<ErrorCode> kCodeMeanings[] = {
    {ErrorCode::kInvalidArgument, "The request or its input is wrong; `field` says which part"},
    {ErrorCode::kUnauthenticated, "The token is missing, expired, revoked or from another coordinator"},
    {ErrorCode::kPermissionDenied, "The token's role does not allow this, or the object belongs to someone else"},
    {ErrorCode::kNotFound, "The object does not exist"},
    {ErrorCode::kConflict, "The object already exists, or its current state does not allow the operation"},
    {ErrorCode::kPreconditionFailed,
     "The object has changed since it was read (`If-Match`): read it again, then retry"},
    {ErrorCode::kTooLarge, "The request is too large, or its owner has reached a quota"},
    {ErrorCode::kResourceExhausted, "Too many requests at once, or not enough memory: retry after `Retry-After`"},
    {ErrorCode::kInsufficientStorage, "A disk is full: free some space, then retry"},
    {ErrorCode::kUnavailable, "A dependency does not respond: retry later; as far as is known, nothing has changed"},
    {ErrorCode::kInternal, "Atoll itself failed: look for the `request_id` in the service's log"},
};
static_assert(is_in_order(kCodeMeanings));

constexpr Word<Cause> kCauseMeanings[] = {
    {Cause::kUnknown, "No cause was given; services always give one"},
    {Cause::kService, "The service itself handled the request and rejected it"},
    {Cause::kSite, "An Atoll program at a site handled the request and rejected it"},
    {Cause::kJobEnded, "The job has ended, so the result is no longer needed"},
    {Cause::kElsewhere,
     "No handler of the service saw the request: the gateway, a proxy or another server answered, or the service has "
     "no such "
     "path or parameter or did not take the token"},
    {Cause::kUnreadable,
     "The input cannot be parsed, such as invalid JSON, a missing body or a broken escape; the status is 400"},
    {Cause::kNoConnection, "A site cannot be reached, or the connection broke"},
    {Cause::kAuthentication, "A site refuses the login: renew the key or certificate"},
    {Cause::kHostKey,
     "A site's host key is unknown or differs from the pinned one: check it with the site, then run `atoll facility "
     "trust`"},
    {Cause::kBusy, "A site or Atoll's own limit allows no more sessions right now"},
    {Cause::kLoginsSpent, "The login limit has been reached; the message says when the next login is allowed"},
    {Cause::kBatchSystem, "A site's batch system does not respond"},
    {Cause::kWorkDirectory, "A facility's work directory does not exist"},
};
static_assert(is_in_order(kCauseMeanings));

template <class Enum, std::size_t count>
const char* find_meaning(const Word<Enum> (&meanings)[count], Enum value) {
    const char* const found = find_word(meanings, value);
    check(found != nullptr, "the reference of errors lacks a row");
    return found;
}

}  // namespace

const char* meaning(ErrorCode code) {
    return find_meaning(kCodeMeanings, code);
}

const char* meaning(Cause cause) {
    return find_meaning(kCauseMeanings, cause);
}

}  // namespace atl
