#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shared/http/client/client.h"
#include "shared/http/server/server.h"

// A server on a free port of loopback, for tests. It has the route that the gateway asks of every service, /v1/token.
// Servers with the same keys accept each other's tokens.
namespace atl::http {

class TestServer {
  public:
    // `routes` adds the routes, before the server starts.
    explicit TestServer(const std::function<void(Server&)>& routes, ServerOptions options = {},
                        auth::KeyPair keys = auth::generate_keys().value());

    std::string url() const;
    const auth::KeyPair& keys() const { return keys_; }
    std::string token(auth::Role role) const;  // of an hour; a facility's has a scope of nothing
    std::string token(const auth::Principal& principal) const;
    Client client(auth::Role role = auth::Role::kAdmin) const;
    Client client_without_token() const;
    Server& server() { return server_; }
    metrics::Registry& metrics() { return metrics_; }

  private:
    auth::KeyPair keys_;
    metrics::Registry metrics_;
    Server server_;
};

// Sends bytes as they are on a new connection, `piece_bytes` at once, and reads until the peer closes or `until` has
// been read.
std::string exchange_raw(std::uint16_t port, const std::string& bytes, const std::string& until = {},
                         std::size_t piece_bytes = SIZE_MAX);
// Sends bytes on a new connection and closes it without waiting for the answer.
void leave_early(std::uint16_t port, const std::string& bytes);

}  // namespace atl::http
