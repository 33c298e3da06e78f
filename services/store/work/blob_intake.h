#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/store/blobs/blob_store.h"
#include "services/store/settings.h"
#include "shared/auth/auth.h"
#include "shared/pg/pg.h"

namespace atl::store {

// Keeps the blobs that are uploaded, within what each may upload: an attempt some times the size of its base, an
// operator so many bytes that no version needs. Only what becomes a new blob counts in the end: what is there costs
// nothing, and what could not be kept is uploaded again. Admins and the services have no quota. Thread-safe.
class BlobIntake {
  public:
    BlobIntake(pg::Pool& pool, BlobStore& blobs, const Settings& settings);

    // As BlobStore::put(); kTooLarge that says which quota is used up. Operators leave the disk's reserve twice, so
    // that there is room for updates when there is none for them.
    Result<BlobStore::Stored> keep(const auth::Principal& principal, const std::string& sha256, std::string_view bytes);

  private:
    enum class Quota { kNone, kAttempt, kOperator };
    static Quota quota_of(const auth::Principal& principal);
    Status reserve(const auth::Principal& principal, std::size_t bytes);
    void refund(const auth::Principal& principal, std::size_t bytes);
    Status record(const auth::Principal& principal, const std::string& sha256, std::size_t cost, bool is_new);

    pg::Pool& pool_;
    BlobStore& blobs_;
    std::int64_t operator_bytes_max_;
};

}  // namespace atl::store
