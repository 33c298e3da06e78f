#include "shared/base/error_words.h"

#include "shared/base/check.h"

namespace atl {
namespace {

constexpr Word<ErrorCode> kCodeMeanings[] = {
    {ErrorCode::kInvalidArgument, "The request or its input is wrong; `field` names what"},
    {ErrorCode::kUnauthenticated, "There is no token, or it has ended, was revoked or is not of this coordinator"},
    {ErrorCode::kPermissionDenied, "The token's role may not do this, or the thing belongs to somebody else"},
    {ErrorCode::kNotFound, "There is no such thing"},
    {ErrorCode::kConflict, "It exists already, or its state does not allow this"},
    {ErrorCode::kPreconditionFailed, "It has changed since it was read (`If-Match`): read it again and repeat"},
    {ErrorCode::kTooLarge, "The request, or what its owner holds in all, is larger than allowed"},
    {ErrorCode::kResourceExhausted,
     "Too much is asked at once, or too little memory is left: repeat after `Retry-After`"},
    {ErrorCode::kInsufficientStorage, "A disk is full: repeat once somebody has made room"},
    {ErrorCode::kUnavailable,
     "Something that is needed does not answer; nothing is known to have changed: repeat later"},
    {ErrorCode::kInternal, "Atoll has failed; the service's log says how, under the same `request_id`"},
};
static_assert(is_in_order(kCodeMeanings));

constexpr Word<Cause> kCauseMeanings[] = {
    {Cause::kUnknown, "Nothing more is known; an answer of a service never says this"},
    {Cause::kService, "The service that was asked has looked at this request"},
    {Cause::kSite, "A program of Atoll's at a site has looked at what it was asked for"},
    {Cause::kJobEnded, "The job has ended, and nobody waits for this any more"},
    {Cause::kElsewhere, "Something on the way answered: the gateway, a proxy, a server that is not Atoll"},
    {Cause::kUnreadable, "The input cannot be parsed: no JSON, no body, a broken escape; the status is 400"},
    {Cause::kNoConnection, "A site is not reached, or the connection broke"},
    {Cause::kAuthentication, "A site refuses the login: a key or a certificate has to be renewed"},
    {Cause::kHostKey, "A site's host key is not known, or is not the one that was pinned"},
    {Cause::kBusy, "A site, or our own limit, allows no further session at the moment"},
    {Cause::kLoginsSpent, "The limit of logins is reached; the message says until when"},
    {Cause::kBatchSystem, "A site's batch system does not answer"},
    {Cause::kWorkDirectory, "A facility's work directory is not there"},
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
