#pragma once

#include <string_view>

#include "shared/service/handler.h"

namespace atl::service {

// The table that idempotent() needs; part of the first migration of a service's schema.
extern const std::string_view kIdempotencyTableSql;

// As in_transaction(), but a request with an Idempotency-Key takes effect once: its answer is kept, in the transaction
// of the effect, and given again to a repeat of the same method, path and body by the same subject. Another request
// under the key is a kConflict. Two at once: the second waits for the first. Errors are not kept, so that a repeat
// may succeed. Without the header it is in_transaction(). Answers are forgotten after a week.
// (https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)
Result<http::Response> idempotent(pg::Pool& pool, const http::Request& request, const Work& work);

// The same with something to do first, unless the answer is kept already: what has to ask other services does so here,
// where no connection is held and no transaction open. Its Error is answered; it may be done more than once.
Result<http::Response> idempotent(pg::Pool& pool, const http::Request& request, const std::function<Status()>& before,
                                  const Work& work);

}  // namespace atl::service
