#include "shared/http/message.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace atl::http {
namespace {

constexpr std::int64_t kPageLimitMax = 1000;

std::string dump(const json::Json& value) {
    return value.dump(-1, ' ', false, json::Json::error_handler_t::replace);
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

const char* title_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::kInvalidArgument:
            return "The request is wrong";
        case ErrorCode::kUnauthenticated:
            return "A valid bearer token is needed";
        case ErrorCode::kPermissionDenied:
            return "This token may not do that";
        case ErrorCode::kNotFound:
            return "There is no such thing";
        case ErrorCode::kConflict:
            return "The current state forbids this";
        case ErrorCode::kPreconditionFailed:
            return "It has changed in the meantime";
        case ErrorCode::kTooLarge:
            return "Too large";
        case ErrorCode::kResourceExhausted:
            return "Too busy at the moment";
        case ErrorCode::kUnavailable:
            return "Unavailable at the moment";
        case ErrorCode::kInternal:
            return "Something went wrong here";
    }
    return "Something went wrong here";
}

}  // namespace

const char* to_string(Method method) {
    switch (method) {
        case Method::kGet:
            return "GET";
        case Method::kHead:
            return "HEAD";
        case Method::kPost:
            return "POST";
        case Method::kPut:
            return "PUT";
        case Method::kPatch:
            return "PATCH";
        case Method::kDelete:
            return "DELETE";
    }
    return "GET";
}

const std::string& Request::param(const std::string& name) const {
    const auto found = params.find(name);
    check(found != params.end(), "the route has no parameter :" + name);
    return found->second;
}

std::string Request::header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
}

Result<json::Json> Request::json() const {
    if (body.empty()) return invalid_argument("", "the request needs a JSON body");
    return json::parse(body);
}

Response Response::json(int status, const json::Json& value) {
    return {.status = status, .body = dump(value), .content_type = "application/json", .headers = {}};
}

Response Response::text(int status, std::string text, std::string content_type) {
    return {.status = status, .body = std::move(text), .content_type = std::move(content_type), .headers = {}};
}

Response Response::empty(int status) {
    return {.status = status, .body = {}, .content_type = {}, .headers = {}};
}

Response Response::problem(const Error& error, const std::string& request_id) {
    // Without a field it is not a part but the request itself that cannot be understood.
    const bool unreadable = error.code == ErrorCode::kInvalidArgument && error.field.empty();
    const int status = unreadable ? 400 : status_of(error.code);
    json::Json body = {{"type", std::string("urn:atoll:problem:") + to_string(error.code)},
                       {"title", title_of(error.code)},
                       {"status", status},
                       {"detail", error.message}};
    if (!error.field.empty()) body["field"] = error.field;
    if (!request_id.empty()) body["request_id"] = request_id;
    Response response = json(status, body);
    response.content_type = "application/problem+json";
    if (error.code == ErrorCode::kUnauthenticated) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kResourceExhausted)
        response.headers.emplace_back("Retry-After", "1");
    return response;
}

Response&& Response::with(std::string name, std::string value) && {
    headers.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
}

int status_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::kInvalidArgument:
            return 422;
        case ErrorCode::kUnauthenticated:
            return 401;
        case ErrorCode::kPermissionDenied:
            return 403;
        case ErrorCode::kNotFound:
            return 404;
        case ErrorCode::kConflict:
            return 409;
        case ErrorCode::kPreconditionFailed:
            return 412;
        case ErrorCode::kTooLarge:
            return 413;
        case ErrorCode::kResourceExhausted:
        case ErrorCode::kUnavailable:
            return 503;
        case ErrorCode::kInternal:
            return 500;
    }
    return 500;
}

Result<Page> page_of(const Request& request) {
    Page page;
    if (const auto after = request.query.find("after"); after != request.query.end()) page.after = after->second;
    const auto limit = request.query.find("limit");
    if (limit == request.query.end()) return page;
    const std::string& text = limit->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), page.limit);
    if (error != std::errc() || end != text.data() + text.size() || page.limit < 1 || page.limit > kPageLimitMax)
        return invalid_argument("limit", "must be a number from 1 to " + std::to_string(kPageLimitMax));
    return page;
}

std::string percent_encode(std::string_view text) {
    static constexpr char kDigits[] = "0123456789ABCDEF";
    static constexpr std::string_view kUnreserved =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    std::string encoded;
    encoded.reserve(text.size());
    for (const char c : text) {
        if (kUnreserved.find(c) != std::string_view::npos) {
            encoded.push_back(c);
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        encoded.push_back('%');
        encoded.push_back(kDigits[byte >> 4]);
        encoded.push_back(kDigits[byte & 15]);
    }
    return encoded;
}

Result<std::string> percent_decode(std::string_view text) {
    std::string decoded;
    decoded.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded.push_back(text[i]);
            continue;
        }
        const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0) return invalid_argument("", "a % in the address needs two hexadecimal digits");
        decoded.push_back(static_cast<char>(high * 16 + low));
        i += 2;
    }
    return decoded;
}

}  // namespace atl::http
