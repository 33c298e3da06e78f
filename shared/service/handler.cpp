#include "shared/service/handler.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "shared/base/text.h"

namespace atl::service {
namespace {

constexpr std::int64_t kPieceItems = 16;  // of a list, that are read at once

std::string text_of(const json::Json& value) {
    return value.dump(-1, ' ', false, json::Json::error_handler_t::replace);
}

}  // namespace

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
    const std::string who = owner == "admin" ? "an admin" : owner + " or an admin";  // "admin" is who `atoll up` makes
    return permission_denied(what + " belongs to " + owner + "; only " + who + " may change it");
}

Result<http::Response> list(const http::Page& page, Cursor cursor, const ReadItems& read) {
    std::string body = R"({"items":[)";
    http::Page piece = page;
    std::int64_t shown = 0;
    bool has_more = true;
    while (has_more && shown < page.limit && body.size() < kPageBytesMax) {
        piece.limit = std::min(kPieceItems, page.limit - shown);
        ATOLL_TRY(std::vector<json::Json> items, read(piece));
        has_more = items.size() > static_cast<std::size_t>(piece.limit);
        if (has_more) items.pop_back();
        for (json::Json& item : items) {
            if (body.size() >= kPageBytesMax) {
                has_more = true;
                break;
            }
            const json::Json& value = item.at(cursor.member);
            piece.after = value.is_string() ? value.get<std::string>() : value.dump();
            if (!cursor.is_shown) item.erase(cursor.member);
            body += (shown++ > 0 ? "," : "") + text_of(item);
        }
    }
    body += R"(],"next":)" + (has_more ? text_of(piece.after) : "null") + "}";
    return http::Response::text(200, std::move(body), "application/json");
}

}  // namespace atl::service
