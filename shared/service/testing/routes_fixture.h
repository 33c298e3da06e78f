#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/http/testing/test_server.h"
#include "shared/pg/testing/database_fixture.h"
#include "shared/service/service.h"
#include "shared/service/testing/response_check.h"

namespace atl::service {

// Base of tests of a service's routes: a database with its schema, and the routes over real HTTP in this process.
class RoutesFixture : public pg::DatabaseTest {
  protected:
    explicit RoutesFixture(Definition definition) : definition_(std::move(definition)), answers_(definition_.openapi) {}
    virtual void add_routes(http::Server& server) = 0;

    void SetUp() override {
        DatabaseTest::SetUp();
        if (IsSkipped()) return;
        const Status migrated = pg::migrate(*connection_, definition_.name, definition_.migrations);
        ASSERT_TRUE(migrated.ok()) << migrated.error().message;
        pool_.emplace(conninfo_, definition_.name, 8);
        server_.emplace([this](http::Server& server) { add_routes(server); });
    }

    // The answer, which must be as the OpenAPI document says.
    http::ClientResponse call(http::Method method, const std::string& path, const json::Json& body = nullptr,
                              auth::Role role = auth::Role::kOperator,
                              const std::vector<std::pair<std::string, std::string>>& headers = {}) {
        auto client = server_->client(role);
        auto answer = client.call(method, path, body.is_null() ? "" : body.dump(), {headers, {}}).value();
        for (const std::string& fault : answers_.faults(method, path, answer)) ADD_FAILURE() << fault;
        return answer;
    }
    Result<json::Json> get(const std::string& path) {
        return call(http::Method::kGet, path, nullptr, auth::Role::kViewer).json();
    }

    Definition definition_;
    std::optional<pg::Pool> pool_;
    std::optional<http::TestServer> server_;
    ResponseCheck answers_;
};

}  // namespace atl::service
