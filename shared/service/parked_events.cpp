#include "shared/service/parked_events.h"

#include "shared/events/events.h"
#include "shared/service/answer.h"

namespace atl::service {
namespace {

constexpr std::int64_t kShownMax = 1000;

http::Response list_parked(pg::Pool& pool, const http::Request& request) {
    return answer(pool, request, [](pg::Transaction& transaction) -> Result<http::Response> {
        ATOLL_TRY(auto events, events::parked_events(transaction.connection(), kShownMax));
        return http::Response::json(200, {{"items", std::move(events)}, {"next", nullptr}});
    });
}

}  // namespace

void add_parked_event_routes(http::Server& server, pg::Pool& pool, Replay replay) {
    using auth::Role;
    server.route(http::Method::kGet, "/v1/events/parked",
                 http::Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer}),
                 [&pool](const http::Request& request) { return list_parked(pool, request); });
    server.route(http::Method::kPost, "/v1/events/parked/:id/replay",
                 http::Access::roles({Role::kAdmin, Role::kOperator}),
                 [replay = std::move(replay)](const http::Request& request) {
                     const Status status = replay(request.param("id"));
                     return status.ok() ? http::Response::json(200, {{"id", request.param("id")}})
                                        : http::Response::problem(status.error(), request.request_id);
                 });
}

}  // namespace atl::service
