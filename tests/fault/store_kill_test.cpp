// The store's program killed while it takes blobs.
#include <chrono>
#include <future>
#include <iterator>
#include <memory>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"
#include "shared/store_client/transfer.h"
#include "tests/integration/service_process.h"
#include "tests/integration/test_stack.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using json::Json;

// As large as they may be: most kills hit the writing of a blob, which the page cache makes quick.
constexpr std::size_t kBlobBytes = 16U << 20;
constexpr int kBlobs = 9;
constexpr int kKills = 2;

class StoreKillTest : public StackTest {
  protected:
    void SetUp() override {
        StackTest::SetUp();
        if (IsSkipped()) return;
        const auto keys = auth::generate_keys().value();
        ASSERT_TRUE(write_file_atomic(directory_.path() / "public.pem", keys.public_pem).ok());
        auth::Principal principal;
        principal.subject = "admin";
        principal.role = auth::Role::kAdmin;
        const std::uint16_t port = free_port();
        config_ = {{"postgres", stack().create_database()},
                   {"kafka_brokers", stack().kafka()},
                   {"public_key_file", (directory_.path() / "public.pem").string()},
                   {"request_bytes_max", 17 << 20},
                   {"port", port},
                   {"store", {{"root", root().string()}, {"topic_prefix", stack().unique("t") + "."}}}};
        transfer_.store.base_url = "http://127.0.0.1:" + std::to_string(port);
        transfer_.store.token =
            auth::Issuer::from_pem(keys.private_pem).value().issue(principal, std::chrono::hours(1)).value();
        transfer_.store.attempts_max = 20;  // it is away for as long as it takes to start
        start();
    }
    fs::path root() const { return directory_.path() / "blobs"; }
    void start() {
        store_.reset();
        store_ = std::make_unique<ServiceProcess>("store", config_, directory_.path());
    }
    std::size_t being_written() const {
        std::error_code ignored;
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(root() / "tmp", ignored), {}));
    }
    // Whatever has a blob's name must be whole.
    int count_whole_blobs() const {
        int count = 0;
        for (const auto& entry : fs::recursive_directory_iterator(root())) {
            if (!entry.is_regular_file() || entry.path().parent_path() == root() / "tmp") continue;
            const auto bytes = read_file(entry.path());
            if (!bytes.ok() && !fs::exists(entry.path())) continue;  // it goes just now
            EXPECT_EQ(digest::sha256(bytes.value()), entry.path().filename().string());
            ++count;
        }
        return count;
    }

    TemporaryDirectory directory_;
    Json config_;
    store_client::TransferOptions transfer_;
    std::unique_ptr<ServiceProcess> store_;
};

TEST_F(StoreKillTest, NothingHalfWrittenHasANameAndUploadsGoOn) {
    store_client::Manifest manifest;
    std::vector<std::string> blobs;
    for (int i = 0; i < kBlobs; ++i) {
        blobs.emplace_back(kBlobBytes, static_cast<char>('a' + i));
        manifest.files.push_back({"part" + std::to_string(i), kBlobBytes, {{digest::sha256(blobs[i]), kBlobBytes}}});
    }
    auto upload = std::async(std::launch::async, [&]() -> Status {
        http::Client client(transfer_.store);
        for (int i = 0; i < kBlobs; ++i) {
            const std::string path = "/v1/blobs/" + manifest.files[i].chunks[0].sha256;
            ATOLL_TRY(const auto response, client.call(http::Method::kPut, path, blobs[i]));
            ATOLL_RETURN_IF_ERROR(response.check());
        }
        return {};
    });
    const auto is_over = [&] { return upload.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
    int kills = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (kills < kKills && !is_over() && std::chrono::steady_clock::now() < deadline) {
        if (being_written() == 0) continue;  // a write takes milliseconds: no pause between looks
        store_->kill();
        ++kills;
        count_whole_blobs();
        start();
    }
    const Status uploaded = upload.get();
    ASSERT_TRUE(uploaded.ok()) << uploaded.error().message << store_->log();
    EXPECT_GT(kills, 0) << "every blob was written between two looks";
    EXPECT_EQ(count_whole_blobs(), kBlobs);
    http::Client client(transfer_.store);
    ASSERT_TRUE(client.post_json("/v1/models", {{"name", "demo"}}, "model").ok());
    const auto version = store_client::create_version(client, "demo", manifest, {});
    EXPECT_TRUE(version.ok()) << (version.ok() ? "" : version.error().message);
}

TEST_F(StoreKillTest, WhatIsRemovedTakesNothingFromWhatStays) {
    constexpr int kVersions = 40;
    http::Client client(transfer_.store);
    ASSERT_TRUE(client.post_json("/v1/models", {{"name", "demo"}}, "model").ok());
    const auto put = [&](const std::string& bytes) {
        const std::string sha256 = digest::sha256(bytes);
        EXPECT_TRUE(client.call(http::Method::kPut, "/v1/blobs/" + sha256, bytes)->ok());
        return store_client::Chunk{sha256, bytes.size()};
    };
    const store_client::Chunk common = put("what all have");
    std::vector<std::string> versions;
    for (int i = 0; i < kVersions; ++i) {
        const store_client::Chunk own = put(std::to_string(i));
        const store_client::Manifest manifest{{{"common", common.size, {common}}, {"own", own.size, {own}}}};
        versions.push_back(store_client::create_version(client, "demo", manifest, {}).value().at("digest"));
    }
    auto removal = std::async(std::launch::async, [&]() -> Status {
        http::Client remover(transfer_.store);
        for (int i = 0; i < kVersions; i += 2) {
            ATOLL_TRY(const auto gone, remover.call(http::Method::kDelete, "/v1/models/demo/versions/" + versions[i]));
            if (gone.status != 404) ATOLL_RETURN_IF_ERROR(gone.check());  // 404: its answer was lost
        }
        ATOLL_RETURN_IF_ERROR(remover.post_json("/v1/prune", {{"unused_blob_hours", 0}}, "prune"));
        return {};
    });
    const auto is_over = [&] { return removal.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
    store_->kill();
    start();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_over() && std::chrono::steady_clock::now() < deadline) {
        if (count_whole_blobs() == kVersions + 1) continue;
        store_->kill();  // while blobs go
        start();
        break;
    }
    const Status removed = removal.get();
    ASSERT_TRUE(removed.ok()) << removed.error().message << store_->log();
    EXPECT_EQ(count_whole_blobs(), kVersions / 2 + 1);
    for (int i = 0; i < kVersions; ++i) {
        const auto manifest = store_client::fetch_manifest(client, versions[i]);
        ASSERT_EQ(manifest.ok(), i % 2 == 1) << i;
        if (!manifest.ok()) continue;
        const Status whole =
            store_client::download_version(versions[i], directory_.path() / "copies" / std::to_string(i), transfer_);
        EXPECT_TRUE(whole.ok()) << whole.error().message;
    }
}

}  // namespace
}  // namespace atl
