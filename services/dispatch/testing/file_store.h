#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "shared/base/file.h"
#include "shared/http/testing/test_server.h"
#include "shared/store_client/manifest.h"

namespace atl::dispatch {

// What the store is to transfers: versions, and blobs that lie in files, so that a test's memory is that of its
// transfer.
class FileStore {
  public:
    FileStore();

    std::string url() const { return server_->url(); }
    std::string token() const { return server_->token(auth::Role::kAdmin); }
    // Keeps the directory's chunks, and the version that they are.
    std::string add_version(const std::filesystem::path& directory);
    // The blob's file; another text in it is damage.
    std::filesystem::path blob(const std::string& sha256) const { return directory_.path() / sha256; }
    // The version of which the newest update was made, null before.
    json::Json created() const;
    std::int64_t blobs_taken() const { return blobs_taken_; }
    // What every request gets from now on; none: what it asks for.
    void set_refusal(std::optional<http::Response> refusal) {
        const std::lock_guard lock(mutex_);
        refusal_ = std::move(refusal);
    }

  private:
    std::optional<http::Response> refusal() const;
    void add_routes(http::Server& server);

    TemporaryDirectory directory_;
    std::atomic<std::int64_t> blobs_taken_ = 0;
    mutable std::mutex mutex_;
    std::map<std::string, json::Json> manifests_;
    json::Json created_;
    std::optional<http::Response> refusal_;
    std::unique_ptr<http::TestServer> server_;  // last: it works with the others
};

}  // namespace atl::dispatch
