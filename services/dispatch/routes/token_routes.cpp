#include "services/dispatch/db/tokens.h"
#include "services/dispatch/routes/routes.h"
#include "shared/auth/subjects.h"
#include "shared/base/id.h"
#include "shared/service/names.h"
#include "shared/service/routes.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

constexpr std::int64_t kDays = 90;
constexpr std::int64_t kDaysMax = 365;

struct TokenOrder {
    auth::Principal principal;
    std::chrono::hours life{};
};

Result<TokenOrder> parse_order(const Json& body) {
    json::ObjectReader reader(body);
    TokenOrder order;
    order.principal.token_id = new_id();
    order.principal.subject = reader.required_string("subject");
    const std::string role = reader.required_string("role");
    order.life = std::chrono::hours(24) * reader.integer_or("days", kDays, 1, kDaysMax);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_RETURN_IF_ERROR(service::check_name(order.principal.subject, "subject"));
    if (auth::is_reserved_subject(order.principal.subject))
        return invalid_argument("subject", "is the name of a service; choose another");
    ATOLL_TRY(order.principal.role, auth::parse_role(role));
    // Whose things are told by the subject alone: nobody else is to be given the names of the stack's own tokens.
    for (const auto& [subject, its_role] :
         {std::pair{"admin", auth::Role::kAdmin}, {"operator", auth::Role::kOperator}})
        if (order.principal.subject == subject && order.principal.role != its_role)
            return invalid_argument("subject",
                                    "is that of the stack's own token, which has another role; choose another");
    if (order.principal.role == auth::Role::kFacility)
        return invalid_argument(
            "role", "must be admin, operator, viewer or metrics: dispatch gives each attempt its own token");
    return order;
}

// Takes no Idempotency-Key: under one the answer would be kept, and the token with it.
Result<Response> post_token(Routing& routing, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const TokenOrder order, parse_order(body));
    ATOLL_TRY(const std::string token, routing.issuer.issue(order.principal, order.life));
    ATOLL_TRY(const std::string key, routing.token_keys.signer_of(token));
    return service::in_transaction(routing.pool, [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_TRY(Json issued,
                  insert_token(transaction, order.principal, order.life, {request.principal->subject, key}));
        issued["token"] = token;
        return Response::json(201, issued);
    });
}

Result<Response> get_tokens(Routing& routing, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(const auto keys, routing.token_keys.holding());
    return service::list(page, {"id"}, [&](const http::Page& piece) {
        return list_tokens(transaction.connection(), keys, piece.after, piece.limit + 1);
    });
}

// Ours are new_id()s, and an attempt's TASK/NUMBER.
Status check_token_id(const std::string& id) {
    constexpr std::size_t kIdLength = 26;
    const std::string own = id.substr(0, id.find('/'));
    const bool is_plain = own.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz") == std::string::npos;
    if (own.size() == kIdLength && is_plain) return {};
    return invalid_argument("id",
                            "is not a token id: an id has 26 lowercase letters and digits; `atoll token list` "
                            "shows them");
}

Result<Response> revoke_token(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_RETURN_IF_ERROR(check_token_id(request.param("id")));
    ATOLL_RETURN_IF_ERROR(revoke_issued_token(transaction, request.param("id")));
    return Response::empty(204);
}

}  // namespace

void add_token_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("dispatch", server, routing);
    routes.add(Method::kPost, "/v1/tokens", post_token);
    routes.add(Method::kGet, "/v1/tokens", get_tokens);
    routes.add(Method::kDelete, "/v1/tokens/:id", revoke_token);
}

}  // namespace atl::dispatch
