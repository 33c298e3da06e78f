#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shared/http/message.h"
#include "shared/metrics/metrics.h"

namespace atl::http {

// Answers one request, once, from any thread; later calls are ignored. Copies share the request.
class Responder {
  public:
    class Impl;
    explicit Responder(std::shared_ptr<Impl> impl);
    void respond(Response response) const;

  private:
    std::shared_ptr<Impl> impl_;
};

using Handler = std::function<Response(const Request&)>;
using AsyncHandler = std::function<void(Request, Responder)>;  // for bounded waits: must not block

// Who may call a route. Deny by default: a route names its roles, or is public on purpose.
struct Access {
    static Access open();  // health, metrics, openapi
    static Access roles(std::initializer_list<auth::Role> roles);
    bool is_public = false;
    unsigned role_bits = 0;
};

struct ServerOptions {
    std::string address = "127.0.0.1";  // or "unix:/path", a socket that is made anew
    std::uint16_t port = 0;             // 0: any free one, see Server::port()
    int io_threads = 2;
    int handler_threads = 16;                  // handlers may block on the database
    std::size_t waiting_requests_max = 256;    // for a handler thread; beyond it 503 with Retry-After
    int refused_tokens_max = 500;              // looks at wrong signatures a second, for an address behind the gateway
    std::size_t request_bytes_max = 1U << 20;  // headers included; nginx's client_max_body_size must be below
    std::size_t body_bytes_max = 512U << 20;   // of all that is being read, and once more of what is unanswered: 503
    std::chrono::seconds drain_time_max{10};
};

// An HTTP/1.1 server on Pistache. It must stand behind the gateway: Pistache alone does not survive slow clients.
// Routes are added before start(). A handler's exception becomes a 500 that says only the request id.
//
//   http::Server server({.port = 7401}, verifier, metrics);
//   server.route(http::Method::kGet, "/v1/datasets/:name", http::Access::roles({auth::Role::kViewer}),
//                [&](const http::Request& request) { return show(request.param("name")); });
//   ATOLL_RETURN_IF_ERROR(server.start());  // answers from here on, until stop()
class Server {
  public:
    Server(ServerOptions options, auth::Verifier verifier, metrics::Registry& metrics);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Patterns such as "/v1/jobs/:id/rounds"; ":name" matches one segment.
    void route(Method method, const std::string& pattern, Access access, Handler handler);
    void route_async(Method method, const std::string& pattern, Access access, AsyncHandler handler);

    // The parameters that a route's query may have; others are refused by name. A route that was not limited takes any.
    void limit_query(Method method, const std::string& pattern, std::vector<std::string> names);

    std::vector<std::pair<Method, std::string>> routes() const;  // what was added: method and pattern

    Status start();
    std::uint16_t port() const;
    // Takes no new connection and ends each that is open with its next answer. What comes on these is still answered,
    // as whoever keeps a connection cannot know; once nothing is in flight, at most after drain_time_max, it stops.
    void stop();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::http
