#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/digest/digest.h"
#include "shared/http/testing/test_server.h"
#include "shared/json/json.h"
#include "shared/site/exit_status.h"
#include "shared/store_client/manifest.h"

// `atoll stage` and `atoll push` against a store that does not always answer.
namespace atl::cli {
namespace {

using http::Request;
using http::Response;
using json::Json;

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

    struct Store {
        std::optional<Error> update_refusal = {};  // of whatever becomes a version
        std::string served_bytes = "{}";
        std::optional<Error> version_refusal = {};  // of whoever asks for the version
        Json posted = {};                           // the newest version
        bool is_lossy = false;                      // and then no blob is there
    };
    Store store() {
        const std::lock_guard lock(mutex_);
        return store_;
    }
    void set(const std::function<void(Store&)>& change) {
        const std::lock_guard lock(mutex_);
        change(store_);
    }

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
        server.route(http::Method::kGet, "/v1/versions/:digest", anyone, [this](const Request&) {
            const Store store = this->store();
            if (store.version_refusal) return Response::problem(*store.version_refusal, "");
            return answer(Response::json(200, {{"manifest", store_client::to_json(manifest_)}}));
        });
        server.route(http::Method::kPost, "/v1/blobs/missing", anyone, [this](const Request& request) {
            const bool is_lost = !store().update_refusal || store().is_lossy;
            const Json asked = request.json().value().at("digests");
            return answer(Response::json(200, {{"missing", is_lost ? asked : Json::array()}}));
        });
        add(http::Method::kPut, "/v1/blobs/:sha256", Json::object());
        server.route(http::Method::kPost, "/v1/models/:name/versions", anyone, [this](const Request& request) {
            set([&](Store& store) { store.posted = request.json().value(); });
            const auto refusal = store().update_refusal;
            return refusal ? Response::problem(*refusal, "") : answer(Response::json(200, {{"digest", digest()}}));
        });
        server.route(http::Method::kGet, "/v1/blobs/:sha256", anyone, [this](const Request&) {
            Response blob;
            blob.body = store().served_bytes;
            return answer(std::move(blob));
        });
    }

    const std::string bytes_ = "{}";
    const store_client::Manifest manifest_{{{"config.json", bytes_.size(), {{digest::sha256(bytes_), bytes_.size()}}}}};
    TemporaryDirectory directory_;
    std::atomic<int> refusal_ = 0;
    std::mutex mutex_;
    Store store_;
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }};
};

TEST_F(SiteCommandsTest, AStoreThatIsAwayForAWhileIsToldApartFromOneThatRefuses) {
    std::filesystem::create_directories(file("model"));
    ASSERT_TRUE(write_file_atomic(file("model/config.json"), bytes_).ok());
    for (const int away : {503, 507, 429}) {
        refusal_ = away;
        EXPECT_EQ(stage().exit_code, site::kExitTryLater) << away;
        EXPECT_EQ(push().exit_code, site::kExitTryLater) << away;
    }
    refusal_ = 422;
    EXPECT_EQ(push().exit_code, 2);
    refusal_ = 413;
    EXPECT_EQ(push().exit_code, 1) << "the next attempt may upload again";
    for (const ErrorCode code : {ErrorCode::kConflict, ErrorCode::kTooLarge}) {
        set([code](Store& store) { store = {.update_refusal = Error{code, "not this update", "manifest"}}; });
        refusal_ = 0;
        EXPECT_EQ(Json::parse(push().out).at("refused"), true) << to_string(code);
    }
    set([](Store& store) { store = {}; });
    for (const int trouble : {400, 409, 413, 422, 401, 403, 404, 429, 500, 502, 503, 507}) {
        refusal_ = trouble;
        const CommandResult pushed = push();
        EXPECT_NE(pushed.exit_code, 0) << trouble;
        EXPECT_EQ(Json::parse(pushed.out).at("refused"), false) << trouble << ": nobody has said what is wrong";
    }
    for (const int trouble : {400, 422, 401, 403, 404, 413, 500}) {
        refusal_ = trouble;
        EXPECT_EQ(stage().exit_code, 1) << trouble << ": nobody has said what is wrong";
    }
    refusal_ = 0;
    set([](Store& store) { store.version_refusal = not_found("there is no such version", "digest"); });
    EXPECT_EQ(stage().exit_code, site::kExitAbsent);
    set([](Store& store) { store.version_refusal = invalid_argument("digest", "is none"); });
    EXPECT_EQ(stage().exit_code, 2);
    set([](Store& store) { store = {.served_bytes = "[]"}; });
    EXPECT_EQ(stage().exit_code, site::kExitAbsent) << "the store's bytes are others";
    set([](Store& store) { store = {}; });
    const CommandResult staged = stage();
    EXPECT_EQ(staged.exit_code, 0) << staged.err;
    EXPECT_EQ(read_file(file("staged/config.json")).value(), bytes_);
    const CommandResult pushed = push();
    EXPECT_EQ(pushed.exit_code, 0) << pushed.err;
    EXPECT_EQ(Json::parse(pushed.out).at("digest"), digest());
}

TEST_F(SiteCommandsTest, WhyAnUpdateIsRefusedIsSaidInOneShortLine) {
    const auto failure = [&](const CommandResult& pushed) {
        EXPECT_LT(pushed.out.size(), 4096U);
        const Json said = Json::parse(pushed.out);
        EXPECT_EQ(said.at("refused"), true);
        return said.at("error");
    };
    const auto update = [&] { return run({"push", "--model", "m", "--dir", file("model")}); };
    EXPECT_EQ(failure(update()).at("code"), "conflict") << "there is none, but it can be made again";
    std::filesystem::create_directories(file("model"));
    ASSERT_TRUE(write_file_atomic(file("model/model.safetensors"), "no tensors").ok());
    const CommandResult broken = update();
    EXPECT_EQ(broken.exit_code, 2);
    EXPECT_EQ(failure(broken).at("code"), "invalid-argument");
    ASSERT_TRUE(write_file_atomic(file("model/config.json"), bytes_).ok());
    set([](Store& store) { store.update_refusal = invalid_argument("manifest", std::string(5000, 'x') + "\x1b"); });
    const Json error = failure(push());
    EXPECT_EQ(error.at("code"), "invalid-argument");
    EXPECT_EQ(error.at("field"), "manifest");
}

TEST_F(SiteCommandsTest, ASealedUpdateIsNotReadForItsDigestsAsLongAsItIsWhatItWas) {
    const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )";
    const auto model_with = [&](std::string number) {
        std::string length(8, '\0');
        length[0] = static_cast<char>(header.size());
        return length + header + std::move(number);
    };
    const std::string model = model_with({0, 0, '\x80', '\x3f'});
    const std::filesystem::path weights = file("model/model.safetensors");
    std::filesystem::create_directories(file("model"));
    ASSERT_TRUE(write_file_atomic(weights, model).ok());
    const auto command = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), ATOLL_PROGRAM);
        return run_command(arguments).value();
    };
    const CommandResult sealed = command({"seal", "--dir", file("model"), "--seal", file("seal.json")});
    ASSERT_EQ(sealed.exit_code, 0) << sealed.err;
    EXPECT_EQ(sealed.out, "") << "it would stand among the trainer's lines";
    const auto hand_in = [&] {
        return run({"push", "--model", "m", "--dir", file("model"), "--seal", file("seal.json")});
    };
    const auto time = std::filesystem::last_write_time(weights);
    ASSERT_TRUE(write_file_atomic(weights, model_with({0, 0, '\xc0', '\x7f'})).ok());  // NaN
    std::filesystem::last_write_time(weights, time);
    ASSERT_EQ(hand_in().exit_code, 0) << "it was not looked at";
    EXPECT_EQ(store().posted.at("manifest").at("files").at(0).at("chunks").at(0).at("sha256"), digest::sha256(model));
    std::filesystem::last_write_time(weights, time + std::chrono::seconds(1));
    EXPECT_EQ(Json::parse(hand_in().out).at("refused"), true) << "it is not what was sealed";
    const CommandResult unsealed = command({"seal", "--dir", file("model"), "--seal", file("other.json")});
    EXPECT_NE(unsealed.exit_code, 0);
    EXPECT_EQ(Json::parse(unsealed.out).at("refused"), true);
    EXPECT_FALSE(Json::parse(unsealed.out).at("error").at("detail").empty());
    EXPECT_FALSE(std::filesystem::exists(file("other.json")));
}

TEST_F(SiteCommandsTest, WhatTheStoreHasLostMeanwhileIsNotRefusedButSentAgain) {
    std::filesystem::create_directories(file("model"));
    ASSERT_TRUE(write_file_atomic(file("model/config.json"), bytes_).ok());
    set([](Store& store) {
        store = {.update_refusal = invalid_argument("manifest", "a blob has not been uploaded"), .is_lossy = true};
    });
    EXPECT_EQ(Json::parse(push().out).at("refused"), false);
}

}  // namespace
}  // namespace atl::cli
