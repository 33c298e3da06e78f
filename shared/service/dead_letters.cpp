#include "shared/service/dead_letters.h"

#include "shared/events/events.h"
#include "shared/service/routes.h"

namespace atl::service {
namespace {

constexpr std::int64_t kShownMax = 1000;

}  // namespace

void add_dead_letter_routes(std::string_view service, http::Server& server, pg::Pool& pool, Replay replay) {
    const auto access = [service](http::Method method, const char* pattern) {
        return access_of(permission_of(service, method, pattern));
    };
    server.route(http::Method::kGet, "/v1/dead-letters", access(http::Method::kGet, "/v1/dead-letters"),
                 [&pool](const http::Request& request) {
                     const auto show = [](pg::Transaction& transaction) -> Result<http::Response> {
                         ATOLL_TRY(auto events, events::dead_letters(transaction.connection(), kShownMax));
                         return http::Response::json(200, {{"items", std::move(events)}, {"next", nullptr}});
                     };
                     return answer(in_transaction(pool, show), request);
                 });
    server.route(http::Method::kPost, "/v1/dead-letters/:id/replay",
                 access(http::Method::kPost, "/v1/dead-letters/:id/replay"),
                 [replay = std::move(replay)](const http::Request& request) {
                     const Status status = replay(request.param("id"));
                     return status.ok() ? http::Response::json(200, {{"id", request.param("id")}})
                                        : http::Response::problem(status.error(), request.request_id);
                 });
}

}  // namespace atl::service
