#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "services/store/blobs/blob_store.h"
#include "services/store/service.h"
#include "shared/http/testing/test_server.h"

namespace atl::store {

// The whole service in this process, on a free port, with a new database. For tests.
class TestStore {
  public:
    TestStore(const std::string& postgres, const std::string& kafka, const std::filesystem::path& root,
              const std::string& topic_prefix);
    ~TestStore();

    // As a new process would: nothing survives but the database and the files.
    void restart();

    http::TestServer& server() { return *server_; }
    pg::Pool& pool() { return *pool_; }

  private:
    void start();
    void stop();

    service::Settings settings_;
    metrics::Registry metrics_;
    std::optional<pg::Pool> pool_;
    std::unique_ptr<service::Running> running_;
    std::unique_ptr<http::TestServer> server_;
};

}  // namespace atl::store
