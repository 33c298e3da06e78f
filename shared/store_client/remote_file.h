#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "shared/base/result.h"
#include "shared/http/client/client.h"
#include "shared/store_client/manifest.h"

namespace atl::store_client {

// Connections that are lent to one thread at a time and kept open between uses. Thread-safe.
class ClientPool {
  public:
    explicit ClientPool(http::ClientOptions options) : options_(std::move(options)) {}

    class Lease {
      public:
        Lease(ClientPool& pool, std::unique_ptr<http::Client> client) : pool_(pool), client_(std::move(client)) {}
        ~Lease() { pool_.give_back(std::move(client_)); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        http::Client& operator*() { return *client_; }
        http::Client* operator->() { return client_.get(); }

      private:
        ClientPool& pool_;
        std::unique_ptr<http::Client> client_;
    };
    Lease take();

  private:
    void give_back(std::unique_ptr<http::Client> client);

    http::ClientOptions options_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<http::Client>> idle_;
};

// One file of a version in the store, readable at any offset by ranged requests for its chunks. A chunk that is read
// whole is checked against its digest. Thread-safe.
class RemoteFile {
  public:
    RemoteFile(std::shared_ptr<ClientPool> store, ManifestFile file);

    std::uint64_t size() const { return file_.size; }
    // Fills `into` from `offset`. kInvalidArgument (field: the path) beyond the end; kInternal for bytes that do not
    // match; whatever the store answers.
    Status read(std::uint64_t offset, std::span<std::byte> into) const;

  private:
    Status read_chunk(const Chunk& chunk, std::uint64_t offset, std::span<std::byte> into) const;

    std::shared_ptr<ClientPool> store_;
    ManifestFile file_;
    std::vector<std::uint64_t> begins_;  // where each chunk begins in the file
};

}  // namespace atl::store_client
