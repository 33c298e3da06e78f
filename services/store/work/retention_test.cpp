// What of the versions goes, and what rots.
#include "services/store/db/retention.h"

#include "services/store/testing/store_fixture.h"
#include "services/store/work/scrub.h"
#include "services/store/work/sweep.h"

namespace atl::store {
namespace {

class RetentionTest : public StoreTest {
  protected:
    void SetUp() override {
        StoreTest::SetUp();
        if (IsSkipped()) return;
        create_model("base");
        create_model("out");
        base_ = make("base", "base", {}, 0);
    }
    // A version of one file, which no other has.
    std::string make(const std::string& model, const std::string& kind, const std::vector<std::string>& parents,
                     int round) {
        return make_of(stored({{"config.json", std::to_string(++count_)}}), model, kind, parents, "job1", round);
    }
    std::string make_of(const Json& manifest, const std::string& model, const std::string& kind,
                        const std::vector<std::string>& parents, const std::string& job, int round) {
        Json version = {{"manifest", manifest}, {"kind", kind}, {"parents", parents}};
        if (round > 0) version.update({{"job", job}, {"round", round}});
        const auto made = call(Method::kPost, "/v1/models/" + model + "/versions", version);
        EXPECT_TRUE(made.ok()) << made.body;
        return Json::parse(made.body).at("digest");
    }
    // Why it stays; empty: it is gone.
    std::string remove(const std::string& path) {
        const auto response = call(Method::kDelete, "/v1/models/" + path);
        if (response.status == 204) return {};
        EXPECT_EQ(response.status, 409) << response.body;
        return Json::parse(response.body).at("detail");
    }
    bool is_there(const std::string& digest) { return call(Method::kGet, "/v1/versions/" + digest).status == 200; }
    Json prune(const Json& order) { return Json::parse(call(Method::kPost, "/v1/prune", order).body); }

    int count_ = 0;
    std::string base_;
};

bool names(const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
}

TEST_F(RetentionTest, OnlyAnAdminTakesBlobsThatAnUploadUnderWayMayNeed) {
    http::Client writer = store_->server().client(Role::kOperator);
    const auto status = [&](http::Client& client, const Json& order) {
        return client.call(Method::kPost, "/v1/prune", order.dump())->status;
    };
    EXPECT_EQ(status(writer, {{"unused_blob_hours", 0}}), 403);
    EXPECT_EQ(status(writer, {{"unused_blob_hours", 24}}), 200);
    EXPECT_EQ(status(writer, Json::object()), 200);
    EXPECT_EQ(status(*admin_, {{"unused_blob_hours", 0}}), 200);
}

TEST_F(RetentionTest, WhatAJobIsAboutToNeedStays) {
    auto dispatch = operator_named("dispatch"), ada = operator_named("ada");
    EXPECT_EQ(call(ada, Method::kGet, "/v1/versions/" + base_).status, 200);
    const std::string other = make("base", "base", {}, 0);
    EXPECT_EQ(remove("base/versions/" + other), "") << "who only looks holds nothing";
    EXPECT_EQ(call(dispatch, Method::kGet, "/v1/versions/" + base_).status, 200);
    EXPECT_TRUE(names(remove("base/versions/" + base_), "a job has begun with it"));
    EXPECT_TRUE(names(remove("base"), "a job has begun with it"));
}

// Whoever has a version as well may remove it, but not the last one of its digest.
TEST_F(RetentionTest, WhatAJobIsAboutToNeedStaysUnderOneOfItsNames) {
    auto dispatch = operator_named("dispatch");
    ASSERT_EQ(call(dispatch, Method::kGet, "/v1/versions/" + base_).status, 200);
    create_model("copy");
    make_of(Json::parse(call(Method::kGet, "/v1/versions/" + base_).body).at("manifest"), "copy", "base", {}, "", 0);
    EXPECT_EQ(remove("base/versions/" + base_), "");
    EXPECT_TRUE(names(remove("copy/versions/" + base_), "a job has begun with it"));
    EXPECT_TRUE(names(remove("copy"), "a job has begun with it"));
}

TEST_F(RetentionTest, TheModelOfAJobsAdaptersStays) {
    const std::string first = make("out", "update", {base_}, 1);
    auto connection = store_->pool().acquire().value();
    ASSERT_TRUE(
        connection->query("UPDATE versions SET adapter_of = $1, parents = '[]' WHERE digest = $2", {base_, first})
            .ok());
    EXPECT_TRUE(names(remove("base/versions/" + base_), first));
    EXPECT_TRUE(names(remove("base"), first));
}

TEST_F(RetentionTest, AVersionGoesWhenNothingNeedsIt) {
    const std::string update = make("out", "update", {base_}, 1);
    const std::string global = make("out", "global", {base_, update}, 1);
    EXPECT_TRUE(names(remove("base/versions/" + base_), update)) << "its base";
    EXPECT_TRUE(names(remove("out/versions/" + global), "job1")) << "the next round may begin from it";
    const std::string next = make("out", "global", {global}, 2);
    EXPECT_TRUE(names(remove("out/versions/" + global), next));
    ASSERT_EQ(call(Method::kPut, "/v1/models/out/tags/best", {{"digest", update}}).status, 200);
    EXPECT_TRUE(names(remove("out/versions/" + update), "best"));
    EXPECT_EQ(call(Method::kDelete, "/v1/models/out/tags/best").status, 204);
    EXPECT_EQ(call(Method::kDelete, "/v1/models/out/tags/best").status, 404);
    EXPECT_EQ(remove("out/versions/" + update), "") << "a mean does not need what it was made of";
    EXPECT_FALSE(is_there(update));
    EXPECT_EQ(call(Method::kDelete, "/v1/models/out/versions/" + update).status, 404);
    EXPECT_EQ(call(Method::kDelete, "/v1/models/out/versions/best").status, 422);
    EXPECT_EQ(row_count("manifests WHERE digest = '" + update + "'"), 0);
    auto blobs = BlobStore::open(temporary_.path() / "blobs").value();
    EXPECT_EQ(sweep(store_->pool(), *blobs, std::chrono::seconds(0))->blobs, 1) << "its one file";
    for (const std::string& kept : {base_, global, next}) EXPECT_TRUE(is_there(kept));
}

TEST_F(RetentionTest, WhatASiteHasFetchedIsNeededForAWhile) {
    http::Client site = facility({base_}, "out");
    ASSERT_EQ(call(site, Method::kGet, "/v1/versions/" + base_).status, 200);
    EXPECT_TRUE(names(remove("base/versions/" + base_), "site"));
    EXPECT_TRUE(names(remove("base"), "site"));
    auto connection = store_->pool().acquire().value();
    ASSERT_TRUE(connection->query("UPDATE versions SET read_at = now() - interval '8 days'").ok());
    EXPECT_EQ(remove("base/versions/" + base_), "");
}

TEST_F(RetentionTest, AModelGoesWithItsVersionsUnlessAnotherNeedsThem) {
    const std::string first = make("out", "global", {base_}, 1);
    make("out", "global", {first}, 2);
    EXPECT_TRUE(names(remove("base"), first));
    EXPECT_EQ(remove("out"), "");
    EXPECT_EQ(call(Method::kGet, "/v1/models/out").status, 404);
    EXPECT_EQ(call(Method::kDelete, "/v1/models/out").status, 404);
    EXPECT_EQ(remove("base"), "");
    EXPECT_EQ(version_count() + row_count("manifest_blobs"), 0);
}

TEST_F(RetentionTest, UpdatesOfOldRoundsGoAndNothingElse) {
    std::vector<std::string> updates;
    std::vector<std::string> globals = {base_};
    std::vector<std::string> states;
    for (int round = 1; round <= 4; ++round) {
        updates.push_back(make("out", "update", {globals.back()}, round));
        states.push_back(make("out", "optimizer_state", {}, round));
        globals.push_back(make("out", "global", {globals.back(), updates.back()}, round));
    }
    const std::string tagged = make("out", "update", {base_}, 1);
    ASSERT_EQ(call(Method::kPut, "/v1/models/out/tags/best", {{"digest", tagged}}).status, 200);
    const std::string fetched = make("out", "update", {base_}, 1);
    http::Client site = facility({fetched}, "");
    ASSERT_EQ(call(site, Method::kGet, "/v1/versions/" + fetched).status, 200);
    const Json look = prune({{"dry_run", true}});
    ASSERT_EQ(look.at("versions").size(), 4U) << look;
    EXPECT_EQ(look.at("versions").at(0).at("digest"), updates[0]);
    EXPECT_TRUE(is_there(updates[0]));
    EXPECT_EQ(prune({{"model", "base"}}).at("versions").size(), 0U);
    EXPECT_EQ(call(Method::kPost, "/v1/prune", {{"model", "none"}}).status, 404);
    EXPECT_EQ(prune(Json::object()).at("versions").size(), 4U);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(is_there(updates[i]), i >= 2) << i;
        EXPECT_EQ(is_there(states[i]), i >= 2) << i;
        EXPECT_TRUE(is_there(globals[i + 1]));
    }
    EXPECT_TRUE(is_there(tagged));
    EXPECT_TRUE(is_there(fetched));
    EXPECT_EQ(prune({{"keep_updates_rounds", 1}}).at("versions").size(), 2U);
    EXPECT_EQ(problem_field(call(Method::kPost, "/v1/prune", {{"keep_updates_rounds", 0}})), "keep_updates_rounds");
}

TEST_F(RetentionTest, WhatAJobThatIsRunAgainHasMadeAgainStaysAsIfItWereNew) {
    const Json manifest = stored({{"config.json", "update"}}), mean = stored({{"config.json", "global"}});
    const std::string update = make_of(manifest, "out", "update", {base_}, "job1", 1);
    const std::string global = make_of(mean, "out", "global", {base_}, "job1", 1);
    make("out", "global", {base_}, 9);
    ASSERT_EQ(make_of(manifest, "out", "update", {base_}, "job2", 1), update);
    ASSERT_EQ(make_of(mean, "out", "global", {base_}, "job2", 1), global);
    EXPECT_EQ(prune({{"keep_updates_rounds", 2}}).at("versions").size(), 0U) << "the second job's round is new";
    EXPECT_TRUE(names(remove("out/versions/" + global), "job2"));
    make_of(stored({{"config.json", "next"}}), "out", "global", {base_}, "job2", 3);
    EXPECT_EQ(prune({{"keep_updates_rounds", 2}}).at("versions").size(), 1U);
    EXPECT_FALSE(is_there(update));
    EXPECT_EQ(row_count("round_versions WHERE digest = '" + update + "'"), 0);
    EXPECT_EQ(remove("out/versions/" + global), "");
}

TEST_F(RetentionTest, ARottenBlobIsNamedWithItsVersionsAndHealsWhenItIsSentAgain) {
    const std::string sha256 = put("weights");
    const std::string digest = create_version("out", stored({{"weights.bin", "weights"}}));
    const fs::path path = temporary_.path() / "blobs" / BlobStore::relative_path(sha256);
    const auto damage = [&] {
        fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
        ASSERT_TRUE(write_file_atomic(path, "weighty").ok());
    };
    const auto damaged = [&] { return Json::parse(call(Method::kGet, "/v1/damaged-blobs").body).at("items"); };
    auto blobs = BlobStore::open(temporary_.path() / "blobs").value();
    ASSERT_TRUE(scrub_blob(store_->pool(), *blobs, sha256).ok());
    EXPECT_EQ(damaged(), Json::array());
    damage();
    EXPECT_EQ(damaged(), Json::array()) << "nobody has looked";
    const auto looked = call(*admin_, Method::kPost, "/v1/blobs/" + sha256 + "/check");
    EXPECT_EQ(looked.status, 200) << looked.body;
    EXPECT_EQ(Json::parse(looked.body), (Json{{"sha256", sha256}, {"damaged", true}}));
    ASSERT_EQ(damaged().size(), 1U);
    EXPECT_EQ(damaged()[0].at("sha256"), sha256);
    EXPECT_EQ(damaged()[0].at("versions"), (Json{{{"model", "out"}, {"digest", digest}}}));
    store_->restart();
    admin_.emplace(store_->server().client(Role::kAdmin));
    const auto missing = [&] {
        return Json::parse(call(Method::kPost, "/v1/blobs/missing", {{"digests", {sha256}}}).body).at("missing");
    };
    EXPECT_EQ(missing(), Json{sha256}) << "so that who has it sends it again";
    EXPECT_EQ(call(*admin_, Method::kPut, "/v1/blobs/" + sha256, "weights").status, 201);
    EXPECT_EQ(call(Method::kGet, "/v1/blobs/" + sha256).body, "weights");
    EXPECT_EQ(missing(), Json::array());
    EXPECT_EQ(damaged(), Json::array());
    damage();
    EXPECT_EQ(call(*admin_, Method::kPut, "/v1/blobs/" + sha256, "weights").status, 201) << "nobody had noticed";
    EXPECT_EQ(call(Method::kGet, "/v1/blobs/" + sha256).body, "weights");
}

TEST_F(RetentionTest, TheScrubberReadsAllBlobsAndGoesOnWhereItWas) {
    const std::string sha256 = put("weights");
    const fs::path path = temporary_.path() / "blobs" / BlobStore::relative_path(sha256);
    fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
    ASSERT_TRUE(write_file_atomic(path, "weighty").ok());
    auto blobs = BlobStore::open(temporary_.path() / "blobs").value();
    metrics::Registry metrics;
    const Scrubber scrubber(store_->pool(), *blobs, std::chrono::seconds(1), metrics);  // a cycle without pauses
    EXPECT_TRUE(eventually([&] { return row_count("damaged_blobs") == 1 && row_count("scrub") == 1; }));
}

}  // namespace
}  // namespace atl::store
