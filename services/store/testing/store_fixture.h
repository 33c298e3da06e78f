#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "services/store/db/repository.h"
#include "services/store/testing/test_store.h"
#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/http/testing/test_server.h"
#include "shared/json/json.h"
#include "shared/safetensors/safetensors.h"
#include "shared/service/testing/response_check.h"
#include "tests/integration/test_stack.h"

namespace atl::store {

namespace fs = std::filesystem;
using auth::Role;
using http::Method;
using json::Json;

// The whole service on a real database and over real HTTP, in this process.
class StoreTest : public StackTest {
  protected:
    void SetUp() override {
        StackTest::SetUp();
        if (IsSkipped()) return;
        topic_prefix_ = stack().unique("store") + ".";
        store_.emplace(stack().create_database(), stack().kafka(), temporary_.path() / "blobs", topic_prefix_);
        admin_.emplace(store_->server().client(Role::kAdmin));
    }

    // A client with the token of an operator of that name; it tries once.
    http::Client operator_named(const std::string& subject) {
        http::ClientOptions options;
        options.base_url = store_->server().url();
        options.token = store_->server().token({.subject = subject, .role = Role::kOperator});
        options.attempts_max = 1;
        return http::Client(options);
    }

    // The answer, which must be as the OpenAPI document says.
    http::ClientResponse call(http::Client& client, Method method, const std::string& path, std::string_view body = {},
                              std::vector<std::pair<std::string, std::string>> headers = {}) {
        auto response = client.call(method, path, body, {std::move(headers), {}});
        check(response.ok(), response.ok() ? "" : response.error().message);
        for (const std::string& fault : answers_.faults(method, path, *response)) ADD_FAILURE() << fault;
        return std::move(response).value();
    }
    http::ClientResponse call(Method method, const std::string& path, const Json& body = nullptr,
                              std::vector<std::pair<std::string, std::string>> headers = {}) {
        return call(*admin_, method, path, body.is_null() ? "" : body.dump(), std::move(headers));
    }
    std::string put(const std::string& bytes) {
        const std::string sha256 = digest::sha256(bytes);
        EXPECT_TRUE(call(*admin_, Method::kPut, "/v1/blobs/" + sha256, bytes).ok());
        return sha256;
    }
    void create_model(const std::string& name) {
        ASSERT_EQ(call(Method::kPost, "/v1/models", {{"name", name}}).status, 201);
    }
    // A manifest whose files are stored, each in one chunk; by an admin, or by a site.
    Json stored(const std::map<std::string, std::string>& files) { return stored(*admin_, files); }
    Json stored(http::Client& by, const std::map<std::string, std::string>& files) {
        Json list = Json::array();
        for (const auto& [path, bytes] : files) {
            const std::string sha256 = digest::sha256(bytes);
            EXPECT_TRUE(call(by, Method::kPut, "/v1/blobs/" + sha256, bytes).ok());
            list.push_back(
                {{"path", path}, {"size", bytes.size()}, {"chunks", {{{"sha256", sha256}, {"size", bytes.size()}}}}});
        }
        return {{"schema", 1}, {"files", list}};
    }
    std::string create_version(const std::string& model, const Json& manifest) {
        const auto response = call(Method::kPost, "/v1/models/" + model + "/versions", {{"manifest", manifest}});
        EXPECT_EQ(response.status, 201) << response.body;
        return Json::parse(response.body).at("digest").get<std::string>();
    }
    http::Client facility(std::vector<std::string> read_versions, const std::string& write_model) {
        return facility(store_->server(), std::move(read_versions), write_model);
    }
    static http::Client facility(const http::TestServer& server, std::vector<std::string> read_versions,
                                 const std::string& write_model, const std::string& attempt = "1") {
        auth::Principal principal;
        principal.subject = "leonardo";
        principal.role = Role::kFacility;
        principal.scope =
            auth::TaskScope{"leonardo", "job1", "task1", attempt, std::move(read_versions), write_model, 1};
        http::ClientOptions options;
        options.base_url = server.url();
        options.token = server.token(principal);
        options.attempts_max = 1;
        return http::Client(options);
    }
    std::int64_t row_count(const std::string& from) {
        return store_->pool().acquire().value()->query("SELECT count(*) AS n FROM " + from).value().integer(0, "n");
    }
    std::int64_t version_count() { return row_count("versions") + row_count("manifests"); }

    TemporaryDirectory temporary_;
    std::string topic_prefix_;
    std::optional<TestStore> store_;
    std::optional<http::Client> admin_;
    service::ResponseCheck answers_{definition().openapi};
};

inline std::string problem_field(const http::ClientResponse& response) {
    const Json body = Json::parse(response.body);
    EXPECT_EQ(response.headers.at("content-type").substr(0, 24), "application/problem+json");
    return body.value("field", "");
}

inline std::string safetensors_file(const std::string& data) {
    std::vector<safetensors::TensorInfo> tensors(1);
    tensors[0] = {"w", safetensors::DType::kU8, {static_cast<std::int64_t>(data.size())}, 0, 0};
    return safetensors::make_header(tensors) + data;
}

}  // namespace atl::store
