#include "services/aggregation/routes/routes.h"

#include <charconv>

#include "services/aggregation/db/repository.h"
#include "shared/service/handler.h"

namespace atl::aggregation {
namespace {

using http::Request;
using http::Response;

Result<std::int64_t> parse_round_number(const std::string& text) {
    std::int64_t round = 0;
    const char* end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data(), end, round);
    if (error != std::errc() || parsed != end || round < 0)
        return invalid_argument("round", "must be a whole number, got \"" + text + "\"");
    return round;
}

Response get_one(pg::Pool& pool, const Request& request) {
    return service::in_transaction(pool, request, [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_TRY(const auto round, parse_round_number(request.param("round")));
        ATOLL_TRY(const auto aggregation, find_aggregation(transaction, request.param("job"), round));
        return Response::json(200, aggregation);
    });
}

Response get_list(pg::Pool& pool, const Request& request) {
    return service::in_transaction(pool, request, [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_TRY(const auto page, http::parse_page(request));
        const auto job = request.query.find("job");
        ATOLL_TRY(auto items, list_aggregations(transaction, job == request.query.end() ? "" : job->second, page));
        return service::list(std::move(items), page, "id");
    });
}

}  // namespace

void add_routes(http::Server& server, pg::Pool& pool, service::Replay replay) {
    service::add_dead_letter_routes(server, pool, std::move(replay));
    const auto readers = http::Access::roles({auth::Role::kAdmin, auth::Role::kOperator, auth::Role::kViewer});
    server.route(http::Method::kGet, "/v1/aggregations", readers,
                 [&pool](const Request& request) { return get_list(pool, request); });
    server.route(http::Method::kGet, "/v1/aggregations/:job/:round", readers,
                 [&pool](const Request& request) { return get_one(pool, request); });
}

}  // namespace atl::aggregation
