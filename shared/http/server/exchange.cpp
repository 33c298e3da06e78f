#include "shared/http/server/exchange.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <utility>

#include "shared/base/id.h"
#include "shared/log/log.h"
#include "shared/metrics/common.h"

namespace atl::http {
namespace {

// As RFC 9110 has it: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date(std::time_t now) {
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    return {text.data(), std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

const char* reason_phrase(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 201:
            return "Created";
        case 202:
            return "Accepted";
        case 204:
            return "No Content";
        case 206:
            return "Partial Content";
        case 304:
            return "Not Modified";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 409:
            return "Conflict";
        case 412:
            return "Precondition Failed";
        case 413:
            return "Content Too Large";
        case 416:
            return "Range Not Satisfiable";
        case 422:
            return "Unprocessable Content";
        case 429:
            return "Too Many Requests";
        case 500:
            return "Internal Server Error";
        case 503:
            return "Service Unavailable";
        case 507:
            return "Insufficient Storage";
        default:
            return status < 400 ? "OK" : "Error";
    }
}

// A value with a line break would be a second header (or a second answer).
std::string one_line(std::string value) {
    std::replace_if(value.begin(), value.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
    return value;
}

bool equal_ignoring_case(const std::string& a, const char* b) {
    return std::equal(a.begin(), a.end(), b, b + std::char_traits<char>::length(b),
                      [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool is_request_id(const std::string& text) {
    return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    });
}

}  // namespace

ServerState::ServerState(std::size_t body_bytes_max, metrics::Registry& metrics)
    : body_bytes_max_(body_bytes_max), metrics_(metrics) {}

std::shared_ptr<void> ServerState::enter(std::size_t body_bytes) {
    const std::lock_guard lock(mutex_);
    if (body_bytes_ + body_bytes > body_bytes_max_) return nullptr;
    ++request_count_;
    body_bytes_ += body_bytes;
    return {this, [self = shared_from_this(), body_bytes](void*) { self->leave(body_bytes); }};
}

void ServerState::leave(std::size_t body_bytes) {
    memory_.count(body_bytes);
    const std::lock_guard lock(mutex_);
    --request_count_;
    body_bytes_ -= body_bytes;
    if (request_count_ == 0) idle_.notify_all();
}

bool ServerState::wait_until_idle(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, timeout, [this] { return request_count_ == 0; });
}

void ServerState::record(Method method, const std::string& pattern, int status, double seconds) {
    const std::string name = to_string(method);
    metrics_
        .counter(metrics::kCommon["atoll_http_requests_total"],
                 {{"method", name}, {"route", pattern}, {"status", std::to_string(status)}})
        .Increment();
    metrics_.histogram(metrics::kCommon["atoll_http_request_duration_seconds"], {{"method", name}, {"route", pattern}})
        .Observe(seconds);
}

void ServerState::stop() {
    const std::unique_lock lock(stop_mutex_);
    stopped_ = true;
}

Responder::Responder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

void Responder::respond(Response response) const {
    impl_->respond(std::move(response));
}

Responder::Impl::Impl(std::shared_ptr<ServerState> state, std::shared_ptr<Connection> connection, const RawRequest& raw)
    : state_(std::move(state)), connection_(std::move(connection)), keep_alive_(raw.keep_alive) {
    const auto sent = raw.headers.find("x-request-id");
    request_id = sent != raw.headers.end() && is_request_id(sent->second) ? sent->second : new_id();
}

Responder::Impl::~Impl() {
    if (!answered_) respond(Response::problem(internal_error("nobody answered this request"), request_id));
}

void Responder::Impl::respond(Response response) {
    if (answered_.exchange(true)) return;
    try {
        state_->unless_stopped([&] { write(std::move(response)); });
    } catch (const std::exception& error) {
        spdlog::error("cannot answer request {}: {}", request_id, error.what());
    }
    in_flight.reset();
}

void Responder::Impl::write(Response response) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const bool close = !keep_alive_ || state_->closing;
    state_->record(method, pattern, response.status, seconds);
    log(response.status, seconds, response.body.size());
    connection_->send(serialize(response, method, request_id, close), std::move(in_flight), close);
}

void Responder::Impl::log(int status, double seconds, std::size_t bytes) const {
    const auto level = is_public && status < 500 ? spdlog::level::debug : spdlog::level::info;
    spdlog::log(level, "request method={} route={} status={} ms={:.1f} bytes={} id={} subject={}", to_string(method),
                pattern, status, seconds * 1000, bytes, request_id, subject.empty() ? "-" : subject);
}

std::string serialize(const Response& response, Method method, const std::string& request_id, bool close) {
    const bool bodiless = response.status == 204 || response.status == 304;
    std::string text = "HTTP/1.1 " + std::to_string(response.status) + " " + reason_phrase(response.status) + "\r\n";
    const auto add = [&text](const std::string& name, std::string value) {
        text += one_line(name) + ": " + one_line(std::move(value)) + "\r\n";
    };
    bool has_date = false;
    bool has_length = false;  // a HEAD route may know the length of a body that it does not build
    for (const auto& [name, value] : response.headers) {
        const bool is_length = equal_ignoring_case(name, "content-length");
        if (is_length && method != Method::kHead) continue;
        has_length = has_length || is_length;
        has_date = has_date || equal_ignoring_case(name, "date");
        add(name, value);
    }
    if (!response.content_type.empty() && !bodiless) add("Content-Type", response.content_type);
    if (!has_length && !bodiless) add("Content-Length", std::to_string(response.body.size()));
    if (!has_date) add("Date", http_date(std::time(nullptr)));
    if (!request_id.empty()) add("X-Request-Id", request_id);
    add("Connection", close ? "close" : "keep-alive");
    text += "\r\n";
    if (!bodiless && method != Method::kHead) text += response.body;
    return text;
}

}  // namespace atl::http
