#include <gtest/gtest.h>

#include <atomic>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/digest/digest.h"
#include "shared/http/testing/test_server.h"
#include "shared/json/json.h"
#include "shared/store_client/manifest.h"

// `atoll stage` and `atoll push` against a store that does not always answer.
namespace atl::cli {
namespace {

using http::Request;
using http::Response;
using json::Json;

constexpr int kTryAgainLater = 75;

// Holds one version of one file, and answers `refusal` instead of anything while that is not 0.
class SiteCommandsTest : public testing::Test {
  protected:
    CommandResult run(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), ATOLL_PROGRAM);
        arguments.insert(arguments.end(), {"--store", server_.url(), "--token-stdin", "--connections", "1"});
        CommandOptions options;
        options.input = server_.token(auth::Role::kOperator) + "\n";
        return run_command(arguments, options).value();
    }
    CommandResult stage() { return run({"stage", "--version", digest(), "--out", file("staged")}); }
    CommandResult push() { return run({"push", "--kind", "base", "--model", "m", "--dir", file("model")}); }

    std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
    std::string digest() const { return store_client::manifest_digest(manifest_); }

    Response answer(Response response) const {
        if (refusal_ == 0) return response;
        Response refused;
        refused.status = refusal_;
        return std::move(refused).with("Retry-After", "0");
    }
    void add_routes(http::Server& server) {
        const auto anyone = http::Access::roles({auth::Role::kOperator});
        const auto add = [&](http::Method method, const char* path, const Json& body) {
            server.route(method, path, anyone,
                         [this, body](const Request&) { return answer(Response::json(200, body)); });
        };
        add(http::Method::kGet, "/v1/versions/:digest", {{"manifest", store_client::to_json(manifest_)}});
        add(http::Method::kPost, "/v1/blobs/missing", {{"missing", {digest::sha256(bytes_)}}});
        add(http::Method::kPut, "/v1/blobs/:sha256", Json::object());
        add(http::Method::kPost, "/v1/models/:name/versions", {{"digest", digest()}});
        server.route(http::Method::kGet, "/v1/blobs/:sha256", anyone, [this](const Request&) {
            Response blob;
            blob.body = bytes_;
            return answer(std::move(blob));
        });
    }

    const std::string bytes_ = "{}";
    const store_client::Manifest manifest_{{{"config.json", bytes_.size(), {{digest::sha256(bytes_), bytes_.size()}}}}};
    TemporaryDirectory directory_;
    std::atomic<int> refusal_ = 0;
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }};
};

TEST_F(SiteCommandsTest, AStoreThatIsAwayForAWhileIsToldApartFromOneThatRefuses) {
    std::filesystem::create_directories(file("model"));
    ASSERT_TRUE(write_file_atomic(file("model/config.json"), bytes_).ok());
    for (const int away : {503, 507, 429}) {
        refusal_ = away;
        EXPECT_EQ(stage().exit_code, kTryAgainLater) << away;
        EXPECT_EQ(push().exit_code, kTryAgainLater) << away;
    }
    refusal_ = 422;
    EXPECT_EQ(stage().exit_code, 2);
    EXPECT_EQ(push().exit_code, 2);
    refusal_ = 413;
    EXPECT_EQ(push().exit_code, 1) << "the next attempt may upload again";
    refusal_ = 0;
    const CommandResult staged = stage();
    EXPECT_EQ(staged.exit_code, 0) << staged.err;
    EXPECT_EQ(read_file(file("staged/config.json")).value(), bytes_);
    const CommandResult pushed = push();
    EXPECT_EQ(pushed.exit_code, 0) << pushed.err;
    EXPECT_EQ(Json::parse(pushed.out).at("digest"), digest());
}

}  // namespace
}  // namespace atl::cli
