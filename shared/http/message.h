#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/base/result.h"
#include "shared/json/json.h"

namespace atl::http {

enum class Method { kGet, kHead, kPost, kPut, kPatch, kDelete };
const char* to_string(Method method);

struct Request {
    Method method = Method::kGet;
    std::string path;                            // as sent, without the query
    std::map<std::string, std::string> params;   // ":name" segments of the route, percent-decoded
    std::map<std::string, std::string> query;    // percent-decoded
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    std::string request_id;                    // X-Request-Id, or a new one
    std::optional<auth::Principal> principal;  // empty only on public routes

    const std::string& param(const std::string& name) const;  // a programmer's error if the route has none
    std::string header(const std::string& name) const;        // empty if absent; name in lower case
    Result<json::Json> json() const;                          // the body, strictly parsed
};

struct Response {
    int status = 200;
    std::string body;
    std::string content_type = "application/json";
    std::vector<std::pair<std::string, std::string>> headers;

    static Response json(int status, const json::Json& value);
    static Response text(int status, std::string text, std::string content_type = "text/plain; charset=utf-8");
    static Response empty(int status = 204);
    // RFC 9457 problem+json: type, title, status, detail, field, cause, request_id. The status is
    // http_status(error.code), but 400 for a kInvalidArgument with Cause::kUnreadable. A handler's own error has
    // Cause::kService.
    static Response problem(const Error& error, const std::string& request_id = {});
    Response&& with(std::string name, std::string value) &&;
};

// An error's status, and back: the "type" of a problem decides where it is one of ours, else the status does.
int http_status(ErrorCode code);
ErrorCode error_code(int status, std::string_view problem_type = {});

// A cursor page of a list: ?limit=…&after=… in, {"items": […], "next": "…" or null} out.
struct Page {
    std::int64_t limit = 100;  // 1 to 1000
    std::string after;         // exclusive; empty: from the start
};
Result<Page> parse_page(const Request& request);

// Before the path of a unix socket, where otherwise an address stands.
inline constexpr std::string_view kUnixPrefix = "unix:";

std::string percent_encode(std::string_view text);
// kInvalidArgument also for what is then no UTF-8, or holds a NUL.
Result<std::string> percent_decode(std::string_view text);

}  // namespace atl::http
