#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "shared/http/server/listener.h"
#include "shared/http/server/memory_return.h"
#include "shared/http/server/server.h"

namespace atl::http {

// What a server shares with its unanswered requests, which may outlive it.
class ServerState : public std::enable_shared_from_this<ServerState> {
  public:
    ServerState(std::size_t body_bytes_max, metrics::Registry& metrics);

    // Counts a request until the result dies; null when its body is more than may be held at once.
    std::shared_ptr<void> enter(std::size_t body_bytes);
    bool wait_until_idle(std::chrono::milliseconds timeout);

    // Measures and logs one answer. Not called once stopped.
    void record(Method method, const std::string& pattern, int status, double seconds);
    // Runs `answer` unless stopped; stop() waits for those that run.
    template <class Function>
    void unless_stopped(Function answer) {
        const std::shared_lock lock(stop_mutex_);
        if (!stopped_) answer();
    }
    void stop();

    std::atomic<bool> closing = false;   // each answer ends its connection
    std::atomic<bool> refusing = false;  // no further request is taken

  private:
    void leave(std::size_t body_bytes);

    std::size_t body_bytes_max_;
    metrics::Registry& metrics_;  // not touched once stopped
    std::shared_mutex stop_mutex_;
    bool stopped_ = false;
    std::mutex mutex_;
    std::condition_variable idle_;
    std::size_t request_count_ = 0;
    std::size_t body_bytes_ = 0;
    MemoryReturn memory_;
};

// One request on its way to its one answer.
class Responder::Impl {
  public:
    Impl(std::shared_ptr<ServerState> state, std::shared_ptr<Connection> connection, const RawRequest& raw);
    ~Impl();  // a request that nobody answered gets a 500
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void respond(Response response);

    std::string request_id;
    std::string pattern = "unknown";  // of the route; never the path, whose variety has no bound
    std::string subject;
    Method method = Method::kGet;
    bool is_public = false;
    std::shared_ptr<void> in_flight;  // set while the request counts

  private:
    void write(Response response);
    void log(int status, double seconds, std::size_t bytes) const;

    std::shared_ptr<ServerState> state_;
    std::shared_ptr<Connection> connection_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::atomic<bool> answered_ = false;
    bool keep_alive_;
};

// The HTTP/1.1 message. The body is left out for HEAD (its Content-Length stays), 204 and 304.
std::string serialize(const Response& response, Method method, const std::string& request_id, bool close);

}  // namespace atl::http
