#include "services/aggregation/routes/routes.h"

#include <charconv>

#include "services/aggregation/db/repository.h"
#include "services/aggregation/events/events.h"
#include "shared/aggregate/strategy_table.h"
#include "shared/service/routes.h"

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

Result<Response> get_aggregation(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const auto round, parse_round_number(request.param("round")));
    ATOLL_TRY(const auto aggregation, find_aggregation(transaction, request.param("job"), round));
    return Response::json(200, aggregation);
}

// For dispatch, where the event that a round has closed, or the one that it has been aggregated, has not come.
Result<Response> put_aggregation(Routing& routing, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const auto round, parse_round_number(request.param("round")));
    const std::string& job = request.param("job");
    const auto known = find_aggregation(transaction, job, round);
    if (known.ok()) return Response::json(200, *known);
    if (known.error().code != ErrorCode::kNotFound) return known.error();
    ATOLL_RETURN_IF_ERROR(take_round(transaction, job, round, routing.settings));
    ATOLL_TRY(const auto taken, find_aggregation(transaction, job, round));
    return Response::json(200, taken);
}

Result<Response> get_aggregations(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const auto page, http::parse_page(request));
    const auto job = request.query.find("job");
    return service::list(page, {"id"}, [&](const http::Page& piece) {
        return list_aggregations(transaction, job == request.query.end() ? "" : job->second, piece);
    });
}

Result<Response> get_strategies(Routing&, pg::Transaction&, const Request&) {
    return Response::json(200, aggregate::describe_strategies());
}

}  // namespace

void add_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("aggregation", server, routing);
    routes.add(http::Method::kGet, "/v1/aggregations", get_aggregations);
    routes.add(http::Method::kGet, "/v1/aggregations/:job/:round", get_aggregation);
    routes.add(http::Method::kGet, "/v1/strategies", get_strategies);
    routes.add(http::Method::kPut, "/v1/aggregations/:job/:round", put_aggregation);
}

}  // namespace atl::aggregation
