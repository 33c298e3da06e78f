#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/http/message.h"
#include "shared/pg/pg.h"

// What the handlers of the services have in common.
namespace atl::service {

// Reads or changes the database in one transaction and says what to answer.
using Work = std::function<Result<http::Response>(pg::Transaction&)>;

// Runs the work and commits; an Error rolls back.
Result<http::Response> in_transaction(pg::Pool& pool, const Work& work);

// The strong entity tag of a resource's revision: "7".
std::string make_etag(std::int64_t revision);
// For changes of a resource that exists: kPreconditionFailed when If-Match names another revision, kInvalidArgument
// when it is missing; "*" names any. (RFC 9110 section 13.1.1)
Status check_if_match(const http::Request& request, std::int64_t revision);

// kPermissionDenied unless who asks is `owner` or an admin; `what` is said as "the job".
Status require_owner(const http::Request& request, const std::string& owner, const std::string& what);

// Reads the page.limit items after page.after, and one more where there is one.
using ReadItems = std::function<Result<std::vector<json::Json>>(const http::Page& page)>;

// The member of an item that the caller of the API sends back as ?after=.
struct Cursor {
    const char* member;
    bool is_shown = true;  // false: no part of the answer
};

// {"items": […], "next": …}. A page ends early once it has kPageBytesMax, with `next` the cursor of its last item.
// Items are read a few at a time, so a page costs about as much memory as it has bytes.
inline constexpr std::size_t kPageBytesMax = std::size_t{1} << 20;
Result<http::Response> list(const http::Page& page, Cursor cursor, const ReadItems& read);

}  // namespace atl::service
