#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/digest/digest.h"
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

    // What a reader that checks chunks itself needs: the chunk that holds a byte (there must be one), and bytes of a
    // chunk as the store has them.
    std::size_t chunk_at(std::uint64_t offset) const;
    const ManifestFile& file() const { return file_; }
    std::uint64_t begin_of(std::size_t chunk) const { return begins_[chunk]; }
    Status fetch(std::size_t chunk, std::uint64_t offset, std::span<std::byte> into) const;

  private:
    std::shared_ptr<ClientPool> store_;
    ManifestFile file_;
    std::vector<std::uint64_t> begins_;  // where each chunk begins in the file
};

// A file of a version of which no byte counts unchecked, whatever ranges are read: a chunk is hashed while it is read
// in order, and what was passed over or is left of it is read for its digest alone, once. Memory is a few MiB. One
// thread at a time.
//
//   CheckedFile file{RemoteFile(store, entry)};
//   ATOLL_RETURN_IF_ERROR(file.read(offset, part));
//   …  // as many as make up a piece of work
//   ATOLL_RETURN_IF_ERROR(file.finish());  // before what was made of them is believed
class CheckedFile {
  public:
    explicit CheckedFile(RemoteFile file) : file_(std::move(file)), checked_(file_.file().chunks.size(), false) {}

    std::uint64_t size() const { return file_.size(); }
    // As RemoteFile::read(), but bytes that do not match are found by this read, a later one or finish(), as
    // kInvalidArgument (field: the path) once the whole chunk, read again, has them too.
    Status read(std::uint64_t offset, std::span<std::byte> into);
    // Reads what is left of the chunk in hand.
    Status finish();
    // Believes no chunk any longer: for another pass, perhaps hours later.
    void forget() { checked_.assign(checked_.size(), false); }
    // The last chunk that did not match; empty: none.
    const std::string& damaged_chunk() const { return damaged_chunk_; }

  private:
    Status read_within(std::size_t chunk, std::uint64_t offset, std::span<std::byte> into);
    // Hashes the chunk's bytes from `at` on, which moves to `end`.
    Status hash_bytes(std::size_t chunk, std::uint64_t& at, std::uint64_t end, digest::Sha256& hash) const;
    Status hash_up_to(std::uint64_t offset);  // of the chunk in hand; at its end it is checked
    Status conclude();

    RemoteFile file_;
    std::vector<bool> checked_;         // by chunk
    std::optional<std::size_t> chunk_;  // in hand: hash_ has its first hashed_ bytes
    std::uint64_t hashed_ = 0;
    std::optional<digest::Sha256> hash_;
    std::string damaged_chunk_;
};

}  // namespace atl::store_client
