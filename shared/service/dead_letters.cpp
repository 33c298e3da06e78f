#include "shared/service/dead_letters.h"

#include "shared/events/events.h"
#include "shared/service/handler.h"

namespace atl::service {
namespace {

constexpr std::int64_t kShownMax = 1000;

}  // namespace

void add_dead_letter_routes(http::Server& server, pg::Pool& pool, Replay replay) {
    using auth::Role;
    server.route(http::Method::kGet, "/v1/dead-letters",
                 http::Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer}),
                 [&pool](const http::Request& request) {
                     return in_transaction(pool, request, [](pg::Transaction& transaction) -> Result<http::Response> {
                         ATOLL_TRY(auto events, events::dead_letters(transaction.connection(), kShownMax));
                         return http::Response::json(200, {{"items", std::move(events)}, {"next", nullptr}});
                     });
                 });
    server.route(http::Method::kPost, "/v1/dead-letters/:id/replay",
                 http::Access::roles({Role::kAdmin, Role::kOperator}),
                 [replay = std::move(replay)](const http::Request& request) {
                     const Status status = replay(request.param("id"));
                     return status.ok() ? http::Response::json(200, {{"id", request.param("id")}})
                                        : http::Response::problem(status.error(), request.request_id);
                 });
}

}  // namespace atl::service
