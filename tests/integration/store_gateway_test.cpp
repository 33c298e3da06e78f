#include <sys/wait.h>

#include <csignal>
#include <optional>

#include "services/store/testing/test_store.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/digest/digest.h"
#include "shared/model_config/testing/tiny_model.h"
#include "shared/store_client/manifest.h"
#include "tests/integration/test_stack.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using auth::Role;
using json::Json;

std::string pattern(std::size_t count, unsigned seed = 0) {
    std::string bytes(count, '\0');
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((i + seed) * 2654435761U >> 24);
    return bytes;
}

// The store behind a real nginx, used by the atoll program.
class StoreGatewayTest : public StackTest {
  protected:
    void SetUp() override {
        StackTest::SetUp();
        if (IsSkipped()) return;
        store_.emplace(stack().create_database(), stack().kafka(), root_ / "blobs", stack().unique("gateway") + ".");
        const std::string address = "127.0.0.1:" + std::to_string(free_port());
        const std::string store = "127.0.0.1:" + std::to_string(store_->server().server().port());
        gateway_ = "http://" + address;
        const auto daemon = start_daemon(
            {ATOLL_PROGRAM, "gateway", "--listen", address, "--store", store, "--registry", store, "--dispatch", store,
             "--aggregation", store, "--blobs", (root_ / "blobs").string(), "--directory", (root_ / "nginx").string()},
            {root_ / "nginx.log", {}, {}});
        ASSERT_TRUE(daemon.ok()) << daemon.error().message;
        nginx_ = *daemon;
        ASSERT_TRUE(eventually([&] { return get("/healthz").ok(); })) << read_file(root_ / "nginx.log").value();
        ASSERT_TRUE(write_file_atomic(root_ / "admin.token", store_->server().token(Role::kAdmin)).ok());
    }
    void TearDown() override {
        if (nginx_ > 0) ::kill(nginx_, SIGTERM);
    }

    http::Client client() {
        http::ClientOptions options;
        options.base_url = gateway_;
        options.token = store_->server().token(Role::kAdmin);
        return http::Client(options);
    }
    http::ClientResponse get(const std::string& path, std::vector<std::pair<std::string, std::string>> headers = {}) {
        auto response = client().call(http::Method::kGet, path, {}, {std::move(headers), {}});
        return response.ok() ? std::move(response).value() : http::ClientResponse{};
    }
    CommandResult atoll(std::vector<std::string> arguments, const std::string& input = {}) {
        arguments.insert(arguments.begin(), ATOLL_PROGRAM);
        CommandOptions options;
        options.input = input;
        options.environment = {{"ATOLL_GATEWAY", gateway_}, {"TERM", "dumb"}};
        return run_command(arguments, options).value();
    }
    CommandResult atoll_as_admin(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--token-file", (root_ / "admin.token").string(), "--json"});
        return atoll(std::move(arguments));
    }
    // Of about as many bytes as `weights`, and of these, so far as they are no NaN.
    fs::path make_model(const std::string& name, std::string weights) {
        for (char& byte : weights) byte = static_cast<char>(byte & 0x3F);
        model_config::write_tiny_model(root_ / name, std::ssize(weights) / 32, weights);
        return root_ / name;
    }

    TemporaryDirectory temporary_;
    fs::path root_ = temporary_.path();
    std::optional<store::TestStore> store_;
    std::string gateway_;
    pid_t nginx_ = 0;
};

TEST_F(StoreGatewayTest, NginxServesTheBytesWithRanges) {
    const std::string bytes = pattern(9U << 20);
    const std::string path = "/store/v1/blobs/" + digest::sha256(bytes);
    ASSERT_EQ(client().call(http::Method::kPut, path, bytes).value().status, 201);
    const auto whole = get(path);
    EXPECT_EQ(whole.status, 200);
    EXPECT_EQ(whole.headers.at("etag"), "\"" + digest::sha256(bytes) + "\"");
    EXPECT_TRUE(whole.body == bytes);
    const auto part = get(path, {{"Range", "bytes=1000000-1000999"}});
    EXPECT_EQ(part.status, 206);
    EXPECT_TRUE(part.body == bytes.substr(1000000, 1000));
    EXPECT_EQ(get("/internal/blobs/" + store::BlobStore::relative_path(digest::sha256(bytes))).status, 404)
        << "the files are not reachable past the store's word";
    http::ClientOptions nobody;
    nobody.base_url = gateway_;
    EXPECT_EQ(http::Client(nobody).call(http::Method::kGet, path).value().status, 401);
}

TEST_F(StoreGatewayTest, ABlobAbove16MiBIsRefused) {
    const std::string bytes((16U << 20) + 1, 'x');
    EXPECT_EQ(client().call(http::Method::kPut, "/store/v1/blobs/" + digest::sha256(bytes), bytes).value().status, 413);
    const std::string largest(16U << 20, 'x');
    EXPECT_EQ(client().call(http::Method::kPut, "/store/v1/blobs/" + digest::sha256(largest), largest).value().status,
              201);
}

TEST_F(StoreGatewayTest, AModelIsPushedTaggedShownVerifiedAndPulled) {
    const fs::path model = make_model("model", pattern(9U << 20));
    const auto pushed = atoll_as_admin({"model", "import", "llama", model.string(), "--tag", "v1"});
    ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
    const Json version = Json::parse(pushed.out);
    EXPECT_EQ(version.at("tags"), Json{"v1"});
    const auto again = atoll_as_admin({"model", "push", "llama", model.string(), "--tag", "v1"});
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(Json::parse(again.out).at("digest"), version.at("digest"));
    EXPECT_EQ(Json::parse(again.out).at("bytes_sent"), 0);
    EXPECT_EQ(atoll_as_admin({"model", "tag", "llama@v1", "best"}).exit_code, 0);
    EXPECT_EQ(Json::parse(atoll_as_admin({"model", "show", "llama@best"}).out).at("digest"), version.at("digest"));
    EXPECT_EQ(Json::parse(atoll_as_admin({"model", "list"}).out).at(0).at("tags").size(), 2U);
    EXPECT_EQ(atoll_as_admin({"model", "verify", "llama@newest"}).exit_code, 0);
    const auto pulled = atoll_as_admin({"model", "pull", "llama", "--out", (root_ / "copy").string()});
    ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
    EXPECT_TRUE(read_file(root_ / "copy/model.safetensors").value() == read_file(model / "model.safetensors").value());
    EXPECT_EQ(atoll_as_admin({"model", "verify", "llama@v1", "--dir", (root_ / "copy").string()}).exit_code, 0);
    ASSERT_TRUE(write_file_atomic(root_ / "copy/config.json", "[]").ok());
    const auto differs = atoll_as_admin({"model", "verify", "llama@v1", "--dir", (root_ / "copy").string()});
    EXPECT_EQ(differs.exit_code, 2);
    EXPECT_NE(differs.err.find("config.json"), std::string::npos) << differs.err;
}

TEST_F(StoreGatewayTest, TheMeanOfControlVariatesIsOfNoUseToWhoPullsAModel) {
    const fs::path model = make_model("model", pattern(1U << 20));
    fs::create_directory(model / "control_variate");
    fs::copy_file(model / "model.safetensors", model / "control_variate/model.safetensors");
    const auto pushed = atoll_as_admin({"model", "push", "llama", model.string()});
    ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
    const std::string copy = root_ / "copy";
    for (int i = 0; i < 2; ++i) {  // again: it is there
        const auto pulled = atoll_as_admin({"model", "pull", "llama", "--out", copy});
        ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
    }
    EXPECT_TRUE(fs::exists(copy + "/model.safetensors"));
    EXPECT_FALSE(fs::exists(copy + "/control_variate"));
    for (const std::string& directory : {copy, model.string()})
        EXPECT_EQ(atoll_as_admin({"model", "verify", "llama@newest", "--dir", directory}).exit_code, 0) << directory;
    fs::resize_file(model / "control_variate/model.safetensors", 100);
    EXPECT_EQ(atoll_as_admin({"model", "verify", "llama@newest", "--dir", model.string()}).exit_code, 2)
        << "where it is it is compared";
}

TEST_F(StoreGatewayTest, VerifyFindsTheBytesThatWereDamagedInTheStore) {
    const fs::path model = make_model("model", pattern(9U << 20));
    const auto pushed = atoll_as_admin({"model", "import", "llama", model.string()});
    ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
    const auto whole = atoll({"model", "verify", "llama@newest", "--token-file", (root_ / "admin.token").string()});
    EXPECT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_TRUE(whole.out.starts_with("ok: 2 files, 9.0 MiB")) << whole.out;
    // The last chunk of the weights is the second: one bit of it changes on the disk, its length stays.
    const std::string weights = read_file(model / "model.safetensors").value();
    const fs::path blob =
        root_ / "blobs" / store::BlobStore::relative_path(digest::sha256(weights.substr(store_client::kChunkBytes)));
    std::string bytes = read_file(blob).value();
    bytes[1000] = static_cast<char>(bytes[1000] ^ 1);
    fs::permissions(blob, fs::perms::owner_write, fs::perm_options::add);
    ASSERT_TRUE(write_file_atomic(blob, bytes).ok());
    const auto damaged = atoll_as_admin({"model", "verify", "llama@newest"});
    EXPECT_EQ(damaged.exit_code, 1) << damaged.out;
    EXPECT_NE(damaged.err.find("model.safetensors, bytes " + std::to_string(store_client::kChunkBytes) + " to " +
                               std::to_string(weights.size() - 1)),
              std::string::npos)
        << damaged.err;
    EXPECT_NE(damaged.err.find("push or import the version's directory again"), std::string::npos) << damaged.err;
    EXPECT_EQ(Json::parse(atoll_as_admin({"model", "damaged"}).out).size(), 1U);
    const auto again = atoll_as_admin({"model", "import", "llama", model.string()});
    EXPECT_EQ(Json::parse(again.out).at("bytes_sent"), weights.size() - store_client::kChunkBytes) << again.out;
    EXPECT_EQ(atoll_as_admin({"model", "verify", "llama@newest"}).exit_code, 0);
    EXPECT_EQ(Json::parse(atoll_as_admin({"model", "damaged"}).out).size(), 0U);
}

TEST_F(StoreGatewayTest, ASiteStagesItsBaseAndPushesItsUpdateWithItsOwnToken) {
    const fs::path model = make_model("model", pattern(1000));
    const Json base = Json::parse(atoll_as_admin({"model", "import", "base", model.string()}).out);
    ASSERT_EQ(client().post_json("/store/v1/models", {{"name", "run1"}}).ok(), true);
    auth::Principal site;
    site.subject = "leonardo";
    site.role = Role::kFacility;
    site.scope = auth::TaskScope{"leonardo", "job1", "t", "1", {base.at("digest")}, "run1", 1};
    const std::string token = store_->server().token(site) + "\n";
    const auto staged = atoll({"stage", "--store", gateway_ + "/store", "--version", base.at("digest"), "--out",
                               (root_ / "site/models/base").string(), "--token-stdin"},
                              token);
    ASSERT_EQ(staged.exit_code, 0) << staged.err;
    EXPECT_EQ(read_file(root_ / "site/models/base/config.json").value(), read_file(model / "config.json").value());

    const fs::path update = make_model("update", pattern(1000, 7));
    ASSERT_TRUE(
        write_file_atomic(
            root_ / "meta.json",
            Json{{"parents", {base.at("digest")}}, {"job", "job1"}, {"round", 1}, {"metrics", {{"loss", 2}}}}.dump())
            .ok());
    const std::vector<std::string> push = {"push",
                                           "--store",
                                           gateway_ + "/store",
                                           "--model",
                                           "run1",
                                           "--kind",
                                           "update",
                                           "--dir",
                                           update.string(),
                                           "--meta",
                                           (root_ / "meta.json").string(),
                                           "--token-stdin"};
    const auto pushed = atoll(push, token);
    ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
    const Json version =
        Json::parse(get("/store/v1/versions/" + Json::parse(pushed.out).at("digest").get<std::string>()).body);
    EXPECT_EQ(version.at("kind"), "update");
    EXPECT_EQ(version.at("parents"), Json{base.at("digest")});
    EXPECT_EQ(version.at("metrics"), (Json{{"loss", 2}}));
    EXPECT_EQ(atoll(push, "not a token\n").exit_code, 1);
    const auto newest = atoll_as_admin({"model", "show", "run1@newest"});
    EXPECT_EQ(newest.exit_code, 2);
    EXPECT_NE(newest.err.find("run1"), std::string::npos) << newest.err;
}

TEST_F(StoreGatewayTest, WhatNobodyNeedsIsRemovedByName) {
    const fs::path model = make_model("model", pattern(1000));
    const auto pushed = atoll_as_admin({"model", "push", "llama", model.string(), "--tag", "v1"});
    ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
    const auto tagged = atoll_as_admin({"model", "rm", "llama@v1"});
    EXPECT_EQ(tagged.exit_code, 1);
    EXPECT_NE(tagged.err.find("v1"), std::string::npos) << tagged.err;
    EXPECT_EQ(atoll_as_admin({"model", "untag", "llama@v1"}).exit_code, 0);
    EXPECT_EQ(atoll_as_admin({"model", "untag", "llama@v1"}).exit_code, 2) << "there is none";
    const std::string digest = Json::parse(pushed.out).at("digest");
    EXPECT_EQ(atoll_as_admin({"model", "rm", "llama@" + digest}).exit_code, 0);
    const auto look = atoll_as_admin({"model", "prune", "--dry-run", "--unused-hours", "0"});
    ASSERT_EQ(look.exit_code, 0) << look.err;
    EXPECT_EQ(Json::parse(look.out).at("blobs"), 2);
    const auto pruned =
        atoll({"model", "prune", "--unused-hours", "0", "--token-file", (root_ / "admin.token").string()});
    EXPECT_TRUE(pruned.out.starts_with("0 versions of 0 B and 2 unused blobs of ")) << pruned.out << pruned.err;
    EXPECT_EQ(atoll_as_admin({"model", "rm", "llama"}).exit_code, 0);
    EXPECT_EQ(atoll_as_admin({"model", "show", "llama"}).exit_code, 2);
}

TEST_F(StoreGatewayTest, AModelOf160GBIsMadeAndReadThroughTheGateway) {
    constexpr std::size_t kChunks = 20'000;
    const std::string chunk = pattern(store_client::kChunkBytes);  // the same at every place: it is stored once
    const std::string sha256 = digest::sha256(chunk);
    ASSERT_TRUE(client().call(http::Method::kPut, "/store/v1/blobs/" + sha256, chunk)->ok());
    ASSERT_TRUE(client().post_json("/store/v1/models", {{"name", "big"}}).ok());
    const Json chunks(kChunks, Json{{"sha256", sha256}, {"size", chunk.size()}});
    const Json manifest = {
        {"schema", 1}, {"files", {{{"path", "weights.bin"}, {"size", kChunks * chunk.size()}, {"chunks", chunks}}}}};
    const auto made = client().post_json("/store/v1/models/big/versions", {{"manifest", manifest}});
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto read = client().get_json("/store/v1/versions/" + made->at("digest").get<std::string>());
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_TRUE(read->at("manifest") == manifest);
}

TEST_F(StoreGatewayTest, ADirectoryThatIsNoModelIsNotImported) {
    const fs::path model = make_model("model", pattern(100));
    fs::resize_file(model / "model.safetensors", 60);
    const auto truncated = atoll_as_admin({"model", "import", "llama", model.string()});
    EXPECT_EQ(truncated.exit_code, 2);
    EXPECT_NE(truncated.err.find("model.safetensors"), std::string::npos) << truncated.err;
    const auto pushed = atoll_as_admin({"model", "push", "llama", model.string()});
    EXPECT_EQ(pushed.exit_code, 2) << "the store looks as well";
    EXPECT_NE(pushed.err.find("model.safetensors"), std::string::npos) << pushed.err;
}

}  // namespace
}  // namespace atl
