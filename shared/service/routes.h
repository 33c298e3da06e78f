#pragma once

#include <string_view>

#include "shared/http/server/server.h"
#include "shared/service/handler.h"
#include "shared/service/idempotency.h"
#include "shared/service/permissions.h"

namespace atl::service {

// The problem that a handler answers. kResourceExhausted is 429: this caller asks for too much at once. A server that
// is too busy for anybody says 503 by itself.
http::Response problem(const Error& error, const std::string& request_id);

// An Error becomes the problem that is answered.
http::Response answer(Result<http::Response> response, const http::Request& request);

// The row of an operation in the table of permissions. A programmer's error: there is none.
const Permission& permission_of(std::string_view service, http::Method method, std::string_view pattern);

// Adds routes whose handlers are functions of the request and of what all of a service's handlers work with; `Routing`
// has at least the member `pool` and outlives the server. Who may call a route is in the table of permissions.
//
//   const service::Routes routes("registry", server, routing);
//   routes.add(http::Method::kGet, "/v1/datasets/:name", get_dataset);
template <class Routing>
class Routes {
  public:
    using Handler = Result<http::Response> (*)(Routing&, const http::Request&);
    using TransactionHandler = Result<http::Response> (*)(Routing&, pg::Transaction&, const http::Request&);

    Routes(std::string_view service, http::Server& server, Routing& routing)
        : service_(service), server_(server), routing_(routing) {}

    void add(http::Method method, const char* pattern, Handler handler) const {
        const Permission& permission = permission_of(service_, method, pattern);
        server_.route(method, pattern, access_of(permission),
                      [&routing = routing_, &permission, handler](const http::Request& request) {
                          const Status may_call = check_caller(permission, *request.principal);
                          return answer(may_call.ok() ? handler(routing, request) : may_call.error(), request);
                      });
    }
    // The handler's work is one transaction, committed when it answers; a POST may bring an Idempotency-Key.
    void add(http::Method method, const char* pattern, TransactionHandler handler) const {
        const Permission& permission = permission_of(service_, method, pattern);
        server_.route(method, pattern, access_of(permission),
                      [&routing = routing_, &permission, handler](const http::Request& request) {
                          if (const Status may_call = check_caller(permission, *request.principal); !may_call.ok())
                              return answer(may_call.error(), request);
                          const auto work = [&](pg::Transaction& transaction) {
                              return handler(routing, transaction, request);
                          };
                          return answer(request.method == http::Method::kPost ? idempotent(routing.pool, request, work)
                                                                              : in_transaction(routing.pool, work),
                                        request);
                      });
    }

  private:
    std::string_view service_;
    http::Server& server_;
    Routing& routing_;
};

}  // namespace atl::service
