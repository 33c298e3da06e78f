#include "shared/http/message.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

#include "shared/base/text.h"
#include "shared/json/bounded.h"
#include "shared/json/printable.h"

namespace atl::http {
namespace {

constexpr std::int64_t kPageLimitMax = 1000;

// Of a body: room for a job of the most participants. Sixteen such bodies at once take 300 MB while they are read.
constexpr std::size_t kBodyValuesMax = 100'000;

std::string dump(const json::Json& value) {
    return value.dump(-1, ' ', false, json::Json::error_handler_t::replace);
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

constexpr std::string_view kProblemPrefix = "urn:atoll:problem:";
// Messages quote what a request says, of which nobody reads megabytes.
constexpr std::size_t kDetailBytesMax = 16U << 10;
constexpr std::size_t kFieldBytesMax = 256;

struct Problem {
    ErrorCode code;
    int status;
    const char* title;
};
// A status stands for the first code that it is found with.
constexpr Problem kProblems[] = {
    {ErrorCode::kInvalidArgument, 422, "The request is wrong"},
    {ErrorCode::kUnauthenticated, 401, "A valid bearer token is needed"},
    {ErrorCode::kPermissionDenied, 403, "This token may not do that"},
    {ErrorCode::kNotFound, 404, "There is no such thing"},
    {ErrorCode::kConflict, 409, "The current state forbids this"},
    {ErrorCode::kPreconditionFailed, 412, "It has changed in the meantime"},
    {ErrorCode::kTooLarge, 413, "Too large"},
    {ErrorCode::kUnavailable, 503, "Unavailable at the moment"},
    {ErrorCode::kResourceExhausted, 503, "Too busy at the moment"},
    {ErrorCode::kInsufficientStorage, 507, "The disk is full"},
    {ErrorCode::kInternal, 500, "Something went wrong here"},
};

const Problem& find_problem(ErrorCode code) {
    const auto* found = std::find_if(std::begin(kProblems), std::end(kProblems),
                                     [&](const Problem& problem) { return problem.code == code; });
    check(found != std::end(kProblems), "an error code has no status");
    return *found;
}

// "Bearer", with why the token was refused where a header's quoted string can hold it (RFC 6750 section 3).
std::string make_challenge(const std::string& why) {
    const bool is_plain =
        std::all_of(why.begin(), why.end(), [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
    return is_plain ? R"(Bearer error="invalid_token", error_description=")" + why + "\"" : "Bearer";
}

// What other servers answer, the gateway among them, and what our own never do.
std::optional<ErrorCode> code_of_others(int status) {
    switch (status) {
        case 400:
            return ErrorCode::kInvalidArgument;
        case 429:
            return ErrorCode::kResourceExhausted;
        case 502:
        case 504:
            return ErrorCode::kUnavailable;
        default:
            return {};
    }
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
    if (body.empty()) return unreadable("the request needs a JSON body");
    return json::parse_bounded(body, kBodyValuesMax);
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
    const bool is_unreadable = error.code == ErrorCode::kInvalidArgument && error.cause == Cause::kUnreadable;
    const int status = is_unreadable ? 400 : http_status(error.code);
    json::Json body = {{"type", std::string(kProblemPrefix) + to_string(error.code)},
                       {"title", find_problem(error.code).title},
                       {"status", status},
                       {"detail", shorten(error.message, kDetailBytesMax)}};
    if (!error.field.empty()) body["field"] = shorten(error.field, kFieldBytesMax);
    body["cause"] = to_string(error.cause == Cause::kUnknown ? Cause::kService : error.cause);
    if (!request_id.empty()) body["request_id"] = request_id;
    Response response = json(status, body);
    response.content_type = "application/problem+json";
    if (error.code == ErrorCode::kUnauthenticated)
        response.headers.emplace_back("WWW-Authenticate", make_challenge(error.message));
    if (error.code == ErrorCode::kInsufficientStorage)
        response.headers.emplace_back("Retry-After", "60");
    else if (is_transient(error.code))
        response.headers.emplace_back("Retry-After", "1");
    return response;
}

Response&& Response::with(std::string name, std::string value) && {
    headers.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
}

int http_status(ErrorCode code) {
    return find_problem(code).status;
}

ErrorCode error_code(int status, std::string_view problem_type) {
    if (problem_type.starts_with(kProblemPrefix))
        if (const auto code = parse_error_code(problem_type.substr(kProblemPrefix.size()))) return *code;
    for (const Problem& problem : kProblems)
        if (problem.status == status) return problem.code;
    return code_of_others(status).value_or(ErrorCode::kInternal);
}

Result<Page> parse_page(const Request& request) {
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
        if (high < 0 || low < 0) return unreadable("a % in the address needs two hexadecimal digits");
        decoded.push_back(static_cast<char>(high * 16 + low));
        i += 2;
    }
    if (decoded.find('\0') != std::string::npos || !json::is_utf8(decoded))
        return unreadable("the address must be UTF-8 without NUL");
    return decoded;
}

}  // namespace atl::http
