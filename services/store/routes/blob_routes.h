#pragma once

#include <semaphore>
#include <string>

#include "services/store/blobs/blob_store.h"
#include "services/store/settings.h"
#include "shared/http/server/server.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::store {

// /v1/blobs: bytes in and out. Outlives the server that it is added to.
class BlobRoutes {
  public:
    BlobRoutes(pg::Pool& pool, BlobStore& blobs, const Settings& settings, metrics::Registry& metrics);
    void add_to(http::Server& server);

  private:
    Result<http::Response> get(const http::Request& request);
    Result<http::Response> put(const http::Request& request);
    Result<http::Response> missing(const http::Request& request);
    Result<BlobStore::Stored> store(const auth::Principal& principal, const std::string& sha256,
                                    const std::string& body);
    Status reserve(const auth::TaskScope& scope, std::size_t bytes);
    void refund(const auth::TaskScope& scope, std::size_t bytes);
    Status may_read(const auth::Principal& principal, const std::string& sha256);

    pg::Pool& pool_;
    BlobStore& blobs_;
    std::string accel_prefix_;
    std::counting_semaphore<1024> puts_;
    prometheus::Counter& bytes_in_;
    prometheus::Counter& bytes_out_;
    prometheus::Counter& refused_;
};

// The one byte range of a "bytes=…" header over `size` bytes, {0, size} if there is none or it is not understood.
// kInvalidArgument if it lies outside.
struct ByteRange {
    std::uint64_t begin;
    std::uint64_t end;  // exclusive
};
Result<ByteRange> parse_range(const std::string& header, std::uint64_t size);

}  // namespace atl::store
