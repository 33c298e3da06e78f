#include "shared/http/server/server.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <utility>

#include "shared/base/text.h"
#include "shared/http/server/exchange.h"
#include "shared/http/server/listener.h"
#include "shared/http/server/refused_tokens.h"
#include "shared/http/server/routes.h"
#include "shared/http/server/thread_pool.h"
#include "shared/log/log.h"

namespace atl::http {
namespace {

std::optional<Method> parse_method(const std::string& name) {
    for (const Method method :
         {Method::kGet, Method::kHead, Method::kPost, Method::kPut, Method::kPatch, Method::kDelete})
        if (name == to_string(method)) return method;
    return std::nullopt;
}

unsigned role_bit(auth::Role role) {
    return 1U << static_cast<unsigned>(role);
}

// "Bearer TOKEN" -> TOKEN, the scheme in any case (RFC 6750, RFC 9110 section 11.1).
Result<std::string> bearer_token(const RawRequest& raw) {
    static constexpr std::string_view kScheme = "bearer ";
    const auto header = raw.headers.find("authorization");
    const Error missing{ErrorCode::kUnauthenticated, "send a token: \"Authorization: Bearer …\"", {}};
    if (header == raw.headers.end() || header->second.size() <= kScheme.size()) return missing;
    for (std::size_t i = 0; i < kScheme.size(); ++i)
        if (std::tolower(static_cast<unsigned char>(header->second[i])) != kScheme[i]) return missing;
    return header->second.substr(kScheme.size());
}

Result<std::map<std::string, std::string>> decode_query(const std::map<std::string, std::string>& raw) {
    std::map<std::string, std::string> query;
    for (auto [name, value] : raw) {
        for (char& c : value)
            if (c == '+') c = ' ';
        ATOLL_TRY(std::string decoded_name, percent_decode(name));
        ATOLL_TRY(std::string decoded_value, percent_decode(value));
        query.emplace(std::move(decoded_name), std::move(decoded_value));
    }
    return query;
}

// A parameter that the route does not know is a slip of the pen: what it was to say would be passed over.
Status check_names(const std::map<std::string, std::string>& query, const Route& route) {
    if (!route.query_names) return {};
    for (const auto& [name, value] : query)
        if (std::find(route.query_names->begin(), route.query_names->end(), name) == route.query_names->end())
            return invalid_argument(name, "there is no such parameter; this path takes " +
                                              (route.query_names->empty() ? "none" : join(*route.query_names)));
    return {};
}

Response method_not_allowed(const std::vector<Method>& allowed, const std::string& request_id) {
    std::string list;
    for (const Method method : allowed) {
        const bool answers_head =
            method == Method::kGet && std::find(allowed.begin(), allowed.end(), Method::kHead) == allowed.end();
        list += (list.empty() ? "" : ", ") + std::string(to_string(method)) + (answers_head ? ", HEAD" : "");
    }
    json::Json body = {{"type", "urn:atoll:problem:method-not-allowed"},
                       {"title", "This path does not take that method"},
                       {"status", 405},
                       {"detail", "use " + list},
                       {"request_id", request_id}};
    Response response = Response::json(405, body).with("Allow", list);
    response.content_type = "application/problem+json";
    return response;
}

std::int64_t seconds_since_start() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::string refusal(int status, const std::string& why) {
    const ErrorCode code = status == 413   ? ErrorCode::kTooLarge
                           : status == 503 ? ErrorCode::kResourceExhausted
                                           : ErrorCode::kInvalidArgument;
    const Cause cause = code == ErrorCode::kInvalidArgument ? Cause::kUnreadable
                        : code == ErrorCode::kTooLarge      ? Cause::kService  // the limit is ours
                                                            : Cause::kElsewhere;
    return serialize(Response::problem({code, why, {}, cause}), Method::kGet, {}, true);
}

}  // namespace

Access Access::open() {
    return {.is_public = true, .role_bits = 0};
}

Access Access::roles(std::initializer_list<auth::Role> roles) {
    Access access;
    for (const auth::Role role : roles) access.role_bits |= role_bit(role);
    return access;
}

class Server::Impl {
  public:
    Impl(ServerOptions options, auth::Verifier verifier, metrics::Registry& metrics)
        : options_(std::move(options)),
          verifier_(std::move(verifier)),
          refused_tokens_(options_.refused_tokens_max, seconds_since_start),
          state_(std::make_shared<ServerState>(options_.body_bytes_max, metrics)),
          pool_(options_.handler_threads, options_.waiting_requests_max),
          listener_(options_,
                    {.on_request = [this](RawRequest raw,
                                          std::shared_ptr<Connection> client) { accept(std::move(raw), client); },
                     .refuse = refusal}) {}

    RouteTable& routes() { return routes_; }

    Status start() {
        started_ = true;
        return listener_.start();
    }
    bool started() const { return started_; }
    std::uint16_t port() const { return listener_.port(); }

    void stop() {
        if (stopped_.exchange(true)) return;
        state_->closing = true;
        listener_.stop_listening();
        const bool is_idle = state_->wait_until_idle(options_.drain_time_max);
        state_->refusing = true;
        if (!is_idle || !state_->wait_until_idle(options_.drain_time_max))  // what came in between
            spdlog::warn("stopping although some requests are not answered yet");
        state_->stop();
        pool_.stop();
        listener_.stop();
    }

  private:
    // On a listener's thread, from here to the handler pool.
    void accept(RawRequest raw, const std::shared_ptr<Connection>& client) noexcept {
        try {
            const auto exchange = std::make_shared<Responder::Impl>(state_, client, raw);
            const auto status = dispatch(std::move(raw), exchange);
            if (status.ok()) return;
            Error error = status.error();
            if (error.cause == Cause::kUnknown) error.cause = Cause::kElsewhere;  // no handler has seen it
            exchange->respond(Response::problem(error, exchange->request_id));
        } catch (const std::exception& error) {
            spdlog::error("a request could not be taken: {}", error.what());
        }
    }

    Status dispatch(RawRequest raw, const std::shared_ptr<Responder::Impl>& exchange) {
        const auto method = parse_method(raw.method);
        exchange->method = method.value_or(Method::kGet);
        if (state_->refusing) return unavailable("the service is stopping");
        exchange->in_flight = state_->enter(raw.body.size());
        if (!exchange->in_flight)
            return Error{ErrorCode::kResourceExhausted, "too many bytes of requests are being worked on", {}};
        ATOLL_TRY(Match match, routes_.match(exchange->method, raw.path));
        if (match.allowed.empty()) return not_found("there is nothing at this path");
        if (match.route == nullptr || !method) {
            exchange->respond(method_not_allowed(match.allowed, exchange->request_id));
            return {};
        }
        exchange->pattern = match.route->pattern;
        exchange->is_public = match.route->access.is_public;
        ATOLL_TRY(auto principal, authorize(match.route->access, raw));
        if (principal) exchange->subject = principal->subject;
        ATOLL_TRY(auto query, decode_query(raw.query));
        ATOLL_RETURN_IF_ERROR(check_names(query, *match.route));
        run(*match.route, exchange,
            Request{.method = exchange->method,
                    .path = std::move(raw.path),
                    .params = std::move(match.params),
                    .query = std::move(query),
                    .headers = std::move(raw.headers),
                    .body = std::move(raw.body),
                    .request_id = exchange->request_id,
                    .principal = std::move(principal)});
        return {};
    }

    // Behind a gateway, which says whom a request is from, an address has so many tokens refused in a second.
    Result<auth::Principal> verify(const std::string& token, const RawRequest& raw) {
        const auto address = raw.headers.find("x-forwarded-for");
        if (address == raw.headers.end()) return verifier_.verify(token);
        if (refused_tokens_.are_too_many(address->second) && !verifier_.remembers(token))
            return Error{ErrorCode::kResourceExhausted, "too many tokens of this address were refused; try again", {}};
        auto principal = verifier_.verify(token);
        if (!principal.ok()) refused_tokens_.count(address->second);
        return principal;
    }

    Result<std::optional<auth::Principal>> authorize(const Access& access, const RawRequest& raw) {
        if (access.is_public) return std::optional<auth::Principal>();
        ATOLL_TRY(const std::string token, bearer_token(raw));
        ATOLL_TRY(auth::Principal principal, verify(token, raw));
        if ((access.role_bits & role_bit(principal.role)) == 0)
            return permission_denied(std::string("the role ") + auth::to_string(principal.role) + " may not do this");
        return std::optional(std::move(principal));
    }

    void run(const Route& route, const std::shared_ptr<Responder::Impl>& exchange, Request request) {
        if (route.async_handler) {
            guard(*exchange, [&] { route.async_handler(std::move(request), Responder(exchange)); });
            return;
        }
        const auto shared_request = std::make_shared<Request>(std::move(request));
        const bool taken = pool_.submit([&route, exchange, shared_request] {
            guard(*exchange, [&] { exchange->respond(route.handler(*shared_request)); });
        });
        if (!taken)
            exchange->respond(Response::problem({ErrorCode::kResourceExhausted, "too many requests are waiting", {}},
                                                exchange->request_id));
    }

    // The one place where a handler's exceptions end. Their texts stay in the log.
    template <class Function>
    static void guard(Responder::Impl& exchange, Function function) {
        try {
            function();
            return;
        } catch (const std::exception& error) {
            spdlog::error("request {} threw: {}", exchange.request_id, error.what());
        } catch (...) {
            spdlog::error("request {} threw something that is no std::exception", exchange.request_id);
        }
        exchange.respond(
            Response::problem(internal_error("an error in the service; its log has the details under this request id"),
                              exchange.request_id));
    }

    ServerOptions options_;
    auth::Verifier verifier_;
    RefusedTokens refused_tokens_;
    RouteTable routes_;
    std::shared_ptr<ServerState> state_;
    ThreadPool pool_;
    Listener listener_;
    bool started_ = false;
    std::atomic<bool> stopped_ = false;
};

Server::Server(ServerOptions options, auth::Verifier verifier, metrics::Registry& metrics)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(verifier), metrics)) {}

Server::~Server() {
    impl_->stop();
}

void Server::route(Method method, const std::string& pattern, Access access, Handler handler) {
    check(!impl_->started(), "routes are added before start()");
    impl_->routes().add({method, pattern, access, std::move(handler), nullptr, {}, {}});
}

void Server::route_async(Method method, const std::string& pattern, Access access, AsyncHandler handler) {
    check(!impl_->started(), "routes are added before start()");
    impl_->routes().add({method, pattern, access, nullptr, std::move(handler), {}, {}});
}

void Server::limit_query(Method method, const std::string& pattern, std::vector<std::string> names) {
    check(!impl_->started(), "queries are limited before start()");
    impl_->routes().limit_query(method, pattern, std::move(names));
}

std::vector<std::pair<Method, std::string>> Server::routes() const {
    std::vector<std::pair<Method, std::string>> routes;
    for (const Route& route : impl_->routes().routes()) routes.emplace_back(route.method, route.pattern);
    return routes;
}

Status Server::start() {
    return impl_->start();
}

std::uint16_t Server::port() const {
    return impl_->port();
}

void Server::stop() {
    impl_->stop();
}

}  // namespace atl::http
