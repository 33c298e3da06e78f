#pragma once

#include <string>

#include "services/store/blobs/blob_store.h"
#include "services/store/domain/version.h"
#include "services/store/settings.h"
#include "shared/http/server/server.h"
#include "shared/pg/pg.h"

namespace atl::store {

// /v1/models and /v1/versions. Outlives the server that it is added to.
class ModelRoutes {
  public:
    ModelRoutes(pg::Pool& pool, BlobStore& blobs, const Settings& settings);
    void add_to(http::Server& server);

  private:
    Result<http::Response> create_model(const http::Request& request);
    Result<http::Response> list_models(const http::Request& request);
    Result<http::Response> get_model(const http::Request& request);
    Result<http::Response> create_version(const http::Request& request);
    Result<http::Response> list_versions(const http::Request& request);
    Result<http::Response> get_version(const http::Request& request);
    Result<http::Response> get_version_anywhere(const http::Request& request);
    Result<http::Response> put_tag(const http::Request& request);
    Status check_parents(const NewVersion& version);
    Result<http::Response> save_version(pg::Transaction& transaction, const std::string& model,
                                        const NewVersion& version, const auth::Principal& writer);

    pg::Pool& pool_;
    BlobStore& blobs_;
    std::string topic_;
};

}  // namespace atl::store
