#include "shared/service/handler.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "shared/base/text.h"

namespace atl::service {

Result<http::Response> in_transaction(pg::Pool& pool, const Work& work) {
    ATOLL_TRY(pg::Pool::Lease connection, pool.acquire());
    ATOLL_TRY(pg::Transaction transaction, pg::Transaction::begin(*connection));
    ATOLL_TRY(http::Response response, work(transaction));
    ATOLL_RETURN_IF_ERROR(transaction.commit());
    return response;
}

std::string make_etag(std::int64_t revision) {
    return "\"" + std::to_string(revision) + "\"";
}

Status check_if_match(const http::Request& request, std::int64_t revision) {
    const std::string header = request.header("if-match");
    if (header.empty())
        return invalid_argument("If-Match", "send If-Match with the ETag of the version that you have read");
    std::string_view rest = header;
    while (!rest.empty()) {
        const std::string_view tag = trim(rest.substr(0, rest.find(',')));
        if (tag == "*" || tag == make_etag(revision)) return {};
        rest.remove_prefix(
            std::min(rest.size(), rest.find(',') == std::string_view::npos ? rest.size() : rest.find(',') + 1));
    }
    return Error{ErrorCode::kPreconditionFailed,
                 "it has been changed since (its ETag is " + make_etag(revision) + "); read it again", "If-Match"};
}

Status require_owner(const http::Request& request, const std::string& owner, const std::string& what) {
    const auth::Principal& asking = *request.principal;
    if (asking.role == auth::Role::kAdmin || asking.subject == owner) return {};
    if (owner.empty()) return permission_denied(what + " belongs to the admins; only they may change it");
    return permission_denied(what + " belongs to " + owner + "; only " + owner + " or an admin may change it");
}

http::Response list(std::vector<json::Json> items, const http::Page& page, const char* cursor) {
    json::Json next = nullptr;
    if (items.size() > static_cast<std::size_t>(page.limit)) {
        items.resize(static_cast<std::size_t>(page.limit));
        const json::Json& value = items.back().at(cursor);
        next = value.is_string() ? value.get<std::string>() : value.dump();
    }
    return http::Response::json(200, {{"items", std::move(items)}, {"next", std::move(next)}});
}

}  // namespace atl::service
