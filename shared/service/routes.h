#pragma once

#include "shared/http/server/server.h"
#include "shared/service/handler.h"
#include "shared/service/idempotency.h"

namespace atl::service {

// Who may call a route; each set has the one before it in it.
http::Access admins();   // what a service's own machine does on someone's word: programs, ssh settings, launchers
http::Access writers();  // operators too
http::Access readers();  // and viewers
// The same and a facility's attempt, whose scope the handler checks.
http::Access writers_and_facilities();
http::Access readers_and_facilities();

// An Error becomes the problem that is answered.
http::Response answer(Result<http::Response> response, const http::Request& request);

// Adds routes whose handlers are functions of the request and of what all of a service's handlers work with; `Routing`
// has at least the member `pool` and outlives the server.
//
//   const service::Routes routes(server, routing);
//   routes.add(http::Method::kGet, "/v1/datasets/:name", service::readers(), get_dataset);
template <class Routing>
class Routes {
  public:
    using Handler = Result<http::Response> (*)(Routing&, const http::Request&);
    using TransactionHandler = Result<http::Response> (*)(Routing&, pg::Transaction&, const http::Request&);

    Routes(http::Server& server, Routing& routing) : server_(server), routing_(routing) {}

    void add(http::Method method, const char* pattern, http::Access access, Handler handler) const {
        server_.route(method, pattern, access, [&routing = routing_, handler](const http::Request& request) {
            return answer(handler(routing, request), request);
        });
    }
    // The handler's work is one transaction, committed when it answers; a POST may bring an Idempotency-Key.
    void add(http::Method method, const char* pattern, http::Access access, TransactionHandler handler) const {
        server_.route(method, pattern, access, [&routing = routing_, handler](const http::Request& request) {
            const auto work = [&](pg::Transaction& transaction) { return handler(routing, transaction, request); };
            return answer(request.method == http::Method::kPost ? idempotent(routing.pool, request, work)
                                                                : in_transaction(routing.pool, work),
                          request);
        });
    }

  private:
    http::Server& server_;
    Routing& routing_;
};

}  // namespace atl::service
