// What an attempt may upload, and what goes when no version needs it.
#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>

#include "services/store/metrics.h"
#include "services/store/routes/routes.h"
#include "services/store/testing/store_fixture.h"
#include "services/store/work/sweep.h"

namespace atl::store {
namespace {

TEST_F(StoreTest, AnAttemptUploadsNoMoreThanSomeTimesItsBase) {
    create_model("base");
    const std::string base = create_version("base", stored({{"weights.bin", "public"}}));
    http::Client site = facility({base}, "out");
    const auto upload = [&](char letter, std::size_t bytes) {
        const std::string body(bytes, letter);
        return call(site, Method::kPut, "/v1/blobs/" + digest::sha256(body), body);
    };
    constexpr std::size_t kQuarter = 16U << 20;  // of what an attempt has beside four times its base
    for (const char letter : {'w', 'x', 'y'}) EXPECT_EQ(upload(letter, kQuarter).status, 201);
    EXPECT_EQ(upload('w', kQuarter).status, 200) << "what is there costs nothing";
    EXPECT_EQ(upload('z', kQuarter - (64U << 10)).status, 201);
    EXPECT_EQ(upload('c', 1).status, 201) << "counts as 64 KiB, as small files cost the disk more than their bytes";
    const auto refused = upload('d', 1);
    EXPECT_EQ(refused.status, 413);
    EXPECT_NE(refused.body.find("task1"), std::string::npos) << refused.body;
    EXPECT_EQ(call(Method::kGet, "/v1/blobs/" + digest::sha256("d")).status, 404);
    EXPECT_EQ(put("d"), digest::sha256("d")) << "people have no quota";
    http::Client evaluating = facility({base}, "");
    EXPECT_EQ(call(evaluating, Method::kPut, "/v1/blobs/" + digest::sha256("e"), "e").status, 403);
    EXPECT_EQ(call(evaluating, Method::kPost, "/v1/blobs/missing", R"({"digests":[]})").status, 403);
}

TEST_F(StoreTest, HoweverManyAttemptsATaskHasThreeOfThemMayUploadAllTheyMay) {
    create_model("base");
    const std::string base = create_version("base", stored({{"weights.bin", "public"}}));
    const auto upload = [&](int attempt, const std::string& body) {
        http::Client site = facility(store_->server(), {base}, "out", std::to_string(attempt));
        return call(site, Method::kPut, "/v1/blobs/" + digest::sha256(body), body).status;
    };
    for (int attempt = 1; attempt <= 3; ++attempt)
        for (int i = 0; i < 4; ++i) {
            const std::string body(16U << 20, static_cast<char>('a' + attempt * 4 + i));
            EXPECT_EQ(upload(attempt, body), 201) << attempt;
        }
    EXPECT_EQ(upload(4, "one more"), 201) << "four times a base of six bytes are not used up";
    auto connection = store_->pool().acquire().value();
    for (const char* counted :
         {"UPDATE uploads SET bytes = bytes + 24 WHERE attempt IN ('1', '2', '3')",
          "UPDATE uploaded_blobs SET bytes = bytes + 24 WHERE blob IN (SELECT min(blob) FROM uploaded_blobs"
          " WHERE attempt IN ('1', '2', '3') GROUP BY attempt)"})
        ASSERT_TRUE(connection->query(counted).ok());
    EXPECT_EQ(upload(4, "and one more"), 413);
    EXPECT_EQ(upload(5, "and another"), 413);
}

TEST_F(StoreTest, OnlyWhatWasKeptCountsTowardsAnAttemptsQuota) {
    create_model("base");
    const std::string base = create_version("base", stored({{"weights.bin", "public"}}));
    auto blobs = BlobStore::open(temporary_.path() / "full").value();
    blobs->set_write_hook([left = 5]() mutable { return left-- > 0 ? ENOSPC : 0; });
    metrics::Registry metrics;
    const Settings settings{.root = temporary_.path() / "full", .accel_prefix = "", .topic_prefix = ""};
    Routing routing(store_->pool(), *blobs, settings, metrics);
    http::ServerOptions server_options;
    server_options.request_bytes_max = 17U << 20;
    http::TestServer server([&](http::Server& to) { add_blob_routes(to, routing); }, server_options);
    http::Client site = facility(server, {base}, "out");
    const auto upload = [&](const std::string& body, const std::string& name) {
        return call(site, Method::kPut, "/v1/blobs/" + name, body).status;
    };
    const std::string body(16U << 20, 'a');  // a quarter of what the attempt may upload
    const std::string name = digest::sha256(body);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(upload(body, name), 507) << "the disk is full";
    EXPECT_EQ(upload(body, digest::sha256("other")), 422);
    EXPECT_EQ(upload(body, name), 201);
    EXPECT_EQ(upload(body, name), 200);
    for (const char letter : {'b', 'c', 'd'}) {
        const std::string more(16U << 20, letter);
        EXPECT_EQ(upload(more, digest::sha256(more)), 201);
    }
    const std::string last(16U << 20, 'e');
    EXPECT_EQ(upload(last, digest::sha256(last)), 413) << "this one would be too much";
}

TEST_F(StoreTest, BlobsThatNoVersionNeedsGoWhenTheyAreOld) {
    create_model("llama");
    const std::string needed = put("needed");
    const std::string unused = put("unused");
    const std::string wanted = put("wanted");
    const std::string fresh = put("fresh");
    create_version("llama", stored({{"weights.bin", "needed"}}));
    const auto path_of = [&](const std::string& sha256) {
        return temporary_.path() / "blobs" / BlobStore::relative_path(sha256);
    };
    const std::chrono::hours day{24};
    for (const std::string& sha256 : {needed, unused, wanted})
        std::filesystem::last_write_time(path_of(sha256), std::filesystem::file_time_type::clock::now() - 2 * day);
    // Whoever is told that a blob is there counts on it.
    const auto missing = call(Method::kPost, "/v1/blobs/missing", {{"digests", {wanted, std::string(64, '0')}}});
    EXPECT_EQ(Json::parse(missing.body).at("missing").size(), 1U);
    auto blobs = BlobStore::open(temporary_.path() / "blobs").value();
    EXPECT_EQ(sweep(store_->pool(), *blobs, day)->blobs, 1);
    EXPECT_FALSE(std::filesystem::exists(path_of(unused)));
    for (const std::string& sha256 : {needed, wanted, fresh}) EXPECT_TRUE(std::filesystem::exists(path_of(sha256)));
    EXPECT_EQ(sweep(store_->pool(), *blobs, day)->blobs, 0);
    const Json manifest = {
        {"schema", 1},
        {"files", {{{"path", "weights.bin"}, {"size", 6}, {"chunks", {{{"sha256", unused}, {"size", 6}}}}}}}};
    EXPECT_EQ(call(Method::kPost, "/v1/models/llama/versions", {{"manifest", manifest}}).status, 422) << "it is gone";
    EXPECT_EQ(put("unused"), unused);
    EXPECT_EQ(call(Method::kPost, "/v1/models/llama/versions", {{"manifest", manifest}}).status, 201);
}

TEST_F(StoreTest, ABlobThatCannotBeRemovedDoesNotEndTheSweep) {
    const std::string unused = put("unused");
    auto blobs = BlobStore::open(temporary_.path() / "blobs").value();
    const fs::path stuck = temporary_.path() / "blobs" / BlobStore::relative_path(std::string(64, '0'));
    fs::create_directories(stuck);  // no file: it cannot be unlinked
    const fs::path path = temporary_.path() / "blobs" / BlobStore::relative_path(unused);
    const auto old = fs::file_time_type::clock::now() - std::chrono::hours(48);
    for (const auto& one : {stuck, path}) fs::last_write_time(one, old);
    EXPECT_EQ(sweep(store_->pool(), *blobs, std::chrono::hours(24))->blobs, 1);
    EXPECT_FALSE(fs::exists(path));
}

TEST_F(StoreTest, AStoreThatHasJustStartedSweepsWhatIsOldAndForgetsUploads) {
    const std::string unused = put("unused");
    const fs::path path = temporary_.path() / "blobs" / BlobStore::relative_path(unused);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(48));
    auto blobs = BlobStore::open(temporary_.path() / "blobs").value();
    auto connection = store_->pool().acquire().value();
    const auto upload = [&] {
        return connection
            ->query(
                "INSERT INTO uploads (task, attempt, bytes, began_at) VALUES ('t', '1', 5, now() - interval '60 days')")
            .ok();
    };
    const auto is_forgotten = [&] { return connection->query("SELECT 1 FROM uploads").value().empty(); };
    metrics::Registry metrics;
    ASSERT_TRUE(upload());
    {
        const Sweeper keeping(store_->pool(), *blobs, std::chrono::hours(0), 2, metrics, std::chrono::seconds(0));
        EXPECT_TRUE(eventually(is_forgotten));
        EXPECT_EQ(metrics.gauge(kMetrics["atoll_store_blobs"]).Value(), 1);
        EXPECT_EQ(metrics.gauge(kMetrics["atoll_store_blobs_bytes"]).Value(), 6);
    }
    EXPECT_TRUE(fs::exists(path)) << "no age: blobs stay";
    ASSERT_TRUE(upload());
    const Sweeper sweeper(store_->pool(), *blobs, std::chrono::hours(24), 2, metrics, std::chrono::seconds(0));
    EXPECT_TRUE(eventually([&] { return !fs::exists(path) && is_forgotten(); }));
    EXPECT_TRUE(eventually([&] { return metrics.gauge(kMetrics["atoll_store_blobs"]).Value() == 0; }));
}

TEST_F(StoreTest, ASweepWaitsForWhoIsMakingAVersion) {
    create_model("llama");
    const std::string sha256 = put("late");
    std::filesystem::last_write_time(temporary_.path() / "blobs" / BlobStore::relative_path(sha256),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
    auto blobs = BlobStore::open(temporary_.path() / "blobs").value();
    auto connection = store_->pool().acquire().value();
    auto making = pg::Transaction::begin(*connection).value();
    ASSERT_TRUE(lock_blobs_shared(making).ok());  // as a request does before it looks for its blobs
    std::atomic<bool> swept = false;
    std::jthread sweeping([&] {
        EXPECT_EQ(sweep(store_->pool(), *blobs, std::chrono::hours(24))->blobs, 0);
        swept = true;
    });
    const auto waiting = [&] {
        auto other = store_->pool().acquire().value();
        return other
                   ->query(
                       "SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND "
                       "database ="
                       " (SELECT oid FROM pg_database WHERE datname = current_database())")
                   .value()
                   .integer(0, "n") > 0;
    };
    ASSERT_TRUE(eventually(waiting));
    EXPECT_FALSE(swept);
    ASSERT_TRUE(
        making.query("INSERT INTO manifests (digest, body, size_bytes, file_count) VALUES ('m', '', 4, 1)").ok());
    ASSERT_TRUE(making.query("INSERT INTO manifest_blobs (manifest, blob) VALUES ('m', $1)", {sha256}).ok());
    ASSERT_TRUE(making.commit().ok());
    sweeping.join();
    EXPECT_EQ(call(Method::kGet, "/v1/blobs/" + sha256).status, 200);
}

}  // namespace
}  // namespace atl::store
