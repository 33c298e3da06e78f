#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "shared/http/server/server.h"

// The narrow waist between our server and Pistache: bytes of one request in, bytes of one answer out.
namespace atl::http {

struct RawRequest {
    std::string method;
    std::string path;                            // as sent, without the query
    std::map<std::string, std::string> query;    // as sent
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    bool keep_alive = true;
};

// The client's side of one request. Thread-safe; answers at most once; safe after the client or the server has gone.
class Connection {
  public:
    virtual ~Connection() = default;
    // Writes a complete HTTP/1.1 message. `until_written` is released once the bytes are with the kernel, or at once
    // when the client has gone. With `close` the connection takes no further request.
    virtual void send(std::string message, std::shared_ptr<void> until_written, bool close) = 0;
};

struct ListenerCallbacks {
    // Called on a listener's thread, which must not block; never throws.
    std::function<void(RawRequest, std::shared_ptr<Connection>)> on_request;
    // A request that is not HTTP (400), too large (413), one too many (503) or speaks what we don't (4xx, 5xx): the
    // whole message to answer.
    std::function<std::string(int status, const std::string& why)> refuse;
};

class Listener {
  public:
    // Of the options only how to listen: address, port, io_threads, request_bytes_max and body_bytes_max.
    Listener(ServerOptions options, ListenerCallbacks callbacks);
    ~Listener();

    Status start();
    std::uint16_t port() const;
    // Whoever connects from now on is refused at once.
    void stop_listening();
    // Closes every connection and joins the threads; no callback runs afterwards.
    void stop();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::http
