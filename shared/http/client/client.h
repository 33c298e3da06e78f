#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/http/message.h"

namespace atl::http {

struct ClientOptions {
    std::string base_url;  // "http://host:7400/store", before each path; or "unix:/a.sock", "unix:/a.sock:/store"
    std::string token;     // bearer token, empty: none
    std::string ca_file;   // extra CA for TLS
    std::chrono::milliseconds connect_timeout{5000};
    std::chrono::milliseconds timeout{60000};
    int attempts_max = 4;  // of idempotent calls (GET HEAD PUT DELETE, POST with Idempotency-Key) on
                           // 502 503 504 and connection errors; jittered back-off, Retry-After honoured
    std::chrono::milliseconds backoff{200};      // before the first repeat; doubles, at most 5 s
    std::size_t response_bytes_max = 64U << 20;  // of a body without a sink; more is kTooLarge
};

struct ClientResponse {
    int status = 0;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;

    bool ok() const { return status >= 200 && status < 300; }
    Result<json::Json> json() const;  // the body of a 2xx; otherwise the Error that the problem+json describes
    Status check() const;             // ok, or that Error
};

struct CallOptions {
    std::vector<std::pair<std::string, std::string>> headers;
    // Bytes of a 2xx body go here instead of into ClientResponse::body. Returning false ends the transfer. A call that
    // has passed bytes to its sink is not repeated: the caller knows where to resume.
    std::function<bool(std::string_view)> sink;
};

// A keep-alive HTTP client on libcurl; one per thread. Never sends "Expect: 100-continue".
//
//   http::Client store({.base_url = "http://127.0.0.1:7400/store", .token = token});
//   ATOLL_TRY(const json::Json page, store.get_json("/v1/models?limit=10"));  // any status but 2xx is an Error
//   ATOLL_TRY(const http::ClientResponse answer, store.call(http::Method::kHead, "/v1/blobs/" + digest));
//   if (answer.status == 404) …  // call() leaves the status to its caller
class Client {
  public:
    explicit Client(ClientOptions options);
    ~Client();
    Client(Client&&) noexcept;
    Client& operator=(Client&&) noexcept;

    // kUnavailable when no answer came; an HTTP status of any kind is a ClientResponse. `path` is percent-encoded by
    // the caller where needed (percent_encode) and may carry a query. kInvalidArgument: a segment of it, decoded, is
    // "." or ".." or holds a "/".
    Result<ClientResponse> call(Method method, const std::string& path, std::string_view body = {},
                                const CallOptions& options = {});
    // JSON in and out; a non-2xx answer becomes the Error of its problem+json.
    Result<json::Json> get_json(const std::string& path);
    Result<json::Json> post_json(const std::string& path, const json::Json& body,
                                 const std::string& idempotency_key = {});
    Result<json::Json> put_json(const std::string& path, const json::Json& body);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::http
