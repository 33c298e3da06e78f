// How much one operator can have the store keep and give out, and what that does to others.
#include <thread>

#include "services/store/db/repository.h"
#include "services/store/testing/store_fixture.h"

namespace atl::store {
namespace {

class BoundsTest : public StoreTest {
  protected:
    void SetUp() override {
        StoreTest::SetUp();
        if (IsSkipped()) return;
        ada_.emplace(operator_named("ada"));
        bob_.emplace(operator_named("bob"));
        for (auto* client : {&*ada_, &*bob_}) {
            const char* name = client == &*ada_ ? "adas" : "bobs";
            ASSERT_EQ(call(*client, Method::kPost, "/v1/models", Json{{"name", name}}.dump()).status, 201);
        }
    }
    // A version of one file, which no other has.
    http::ClientResponse post(http::Client& by, const std::string& model, Json more) {
        more["manifest"] = stored({{"config.json", std::to_string(++count_)}});
        return call(by, Method::kPost, "/v1/models/" + model + "/versions", more.dump());
    }
    static std::string digest_of(const http::ClientResponse& made) {
        EXPECT_EQ(made.status, 201) << made.body;
        return Json::parse(made.body).at("digest");
    }
    // Of a round of ada's job, as aggregation and sites make them.
    std::string make(const std::string& kind, const std::vector<std::string>& parents, int round) {
        return digest_of(
            post(*admin_, "adas", {{"kind", kind}, {"parents", parents}, {"job", "job1"}, {"round", round}}));
    }
    void sql(const std::string& statement) {
        ASSERT_TRUE(store_->pool().acquire().value()->query(statement).ok()) << statement;
    }

    int count_ = 0;
    std::optional<http::Client> ada_, bob_;
};

TEST_F(BoundsTest, PagesOfLargeVersionsEndEarlyAndGoOnWithTheirNext) {
    std::vector<std::string> made;
    for (int i = 0; i < 24; ++i)
        made.push_back(digest_of(post(*bob_, "bobs", {{"metrics", {{"text", std::string(60'000, 'x')}}}})));
    std::vector<std::string> seen;
    int pages = 0;
    for (Json after = ""; !after.is_null(); ++pages) {
        const auto answer =
            call(*bob_, Method::kGet, "/v1/models/bobs/versions?limit=1000&after=" + after.get<std::string>());
        EXPECT_LT(answer.body.size(), (std::size_t{1} << 20) + 70'000);
        const Json page = Json::parse(answer.body);
        for (const Json& version : page.at("items")) seen.push_back(version.at("digest"));
        after = page.at("next");
    }
    EXPECT_EQ(seen, made);
    EXPECT_EQ(pages, 2);
}

TEST_F(BoundsTest, AnOperatorsVersionKeepsNothingOfSomebodyElse) {
    const std::string base = digest_of(post(*ada_, "adas", Json::object()));
    const std::string update = make("update", {base}, 1);
    const std::string global = make("global", {base, update}, 1);
    make("global", {global}, 4);
    EXPECT_EQ(problem_field(post(*bob_, "bobs", {{"parents", {base, update}}})), "parents[1]")
        << "it is not his to read";
    const std::string child = digest_of(post(*bob_, "bobs", {{"parents", {base}}}));
    EXPECT_EQ(Json::parse(call(*bob_, Method::kGet, "/v1/versions/" + child).body).at("parents"), Json{base});
    const auto kept = digest_of(post(*ada_, "adas", {{"parents", {update}}}));
    const auto pruned = [&] {
        return Json::parse(call(*ada_, Method::kPost, "/v1/prune", "{}").body).at("versions").size();
    };
    EXPECT_EQ(pruned(), 0U) << "a version of the owner's own";
    EXPECT_EQ(call(*ada_, Method::kDelete, "/v1/models/adas/versions/" + kept).status, 204);
    sql("UPDATE versions SET parents = jsonb_build_array('" + update + "') WHERE digest = '" + child + "'");
    EXPECT_EQ(pruned(), 1U);
    sql("UPDATE versions SET parents = jsonb_build_array('" + base + "') WHERE digest = '" + child + "'");
    EXPECT_EQ(call(*ada_, Method::kDelete, "/v1/models/adas", "").status, 204);
}

// Each looks through all blobs of the store.
TEST_F(BoundsTest, OnePrunesAtATime) {
    auto connection = store_->pool().acquire().value();
    auto transaction = pg::Transaction::begin(*connection).value();
    ASSERT_TRUE(lock_blobs_alone(transaction).ok());
    http::Client other = operator_named("eve");
    std::jthread first([&] { EXPECT_EQ(call(*ada_, Method::kPost, "/v1/prune", "{}").status, 200); });
    const auto waits = [&] { return row_count("pg_locks WHERE NOT granted AND locktype = 'advisory'") > 0; };
    for (int i = 0; i < 1000 && !waits(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(call(other, Method::kPost, "/v1/prune", R"({"dry_run":true})").status, 429);
    ASSERT_TRUE(transaction.commit().ok());
    first.join();
    EXPECT_EQ(call(other, Method::kPost, "/v1/prune", R"({"dry_run":true})").status, 200);
}

TEST_F(BoundsTest, NobodyReadsABlobOfAnUpdateByNamingItInAVersion) {
    const std::string base = digest_of(post(*ada_, "adas", Json::object()));
    http::Client site = facility({base}, "adas");
    const std::string bytes = "learnt", sha256 = digest::sha256(bytes);
    const Json manifest = stored(site, {{"config.json", bytes}});
    ASSERT_EQ(call(*admin_, Method::kPost, "/v1/models/adas/versions",
                   Json{{"manifest", manifest}, {"kind", "update"}, {"parents", {base}}}.dump())
                  .status,
              201);
    const std::string body = Json{{"manifest", manifest}}.dump();
    const auto missing = [&](http::Client& by) {
        return Json::parse(call(by, Method::kPost, "/v1/blobs/missing", Json{{"digests", {sha256}}}.dump()).body)
            .at("missing");
    };
    EXPECT_EQ(call(*bob_, Method::kPost, "/v1/models/bobs/versions", body).status, 403);
    EXPECT_EQ(call(*bob_, Method::kGet, "/v1/blobs/" + sha256).status, 403);
    EXPECT_EQ(missing(*ada_), Json::array());
    EXPECT_EQ(missing(*bob_), Json{sha256}) << "who has it sends it";
    EXPECT_EQ(call(*bob_, Method::kPut, "/v1/blobs/" + sha256, bytes).status, 200);
    EXPECT_EQ(call(*bob_, Method::kPost, "/v1/models/bobs/versions", body).status, 201);
}

TEST_F(BoundsTest, AnOperatorMakesSoManyModelsAndTagsAndNoMore) {
    const std::string digest = digest_of(post(*bob_, "bobs", Json::object()));
    const auto tag = [&](http::Client& by, const std::string& name) {
        return call(by, Method::kPut, "/v1/models/bobs/tags/" + name, Json{{"digest", digest}}.dump()).status;
    };
    ASSERT_EQ(tag(*bob_, "first"), 200);
    sql("INSERT INTO tags (model, tag, digest, updated_by) SELECT 'bobs', 'made-' || i, '" + digest +
        "', 'bob' FROM generate_series(1, 255) i");
    EXPECT_EQ(tag(*bob_, "one-more"), 413);
    EXPECT_EQ(tag(*bob_, "first"), 200) << "it is there";
    EXPECT_EQ(tag(*admin_, "one-more"), 200);
    sql("INSERT INTO models (name, description, owner, created_by) SELECT 'made-' || i, '', 'bob', 'bob'"
        " FROM generate_series(1, 1999) i");
    auto dispatch = operator_named("dispatch");
    const auto create = [&](http::Client& by, const Json& model) {
        return call(by, Method::kPost, "/v1/models", model.dump()).status;
    };
    EXPECT_EQ(create(*bob_, {{"name", "one-more"}}), 413);
    EXPECT_EQ(create(dispatch, {{"name", "of-a-job"}, {"owner", "bob"}}), 413);
    EXPECT_EQ(post(*bob_, "with-a-version", {{"new_model", Json::object()}}).status, 413);
    EXPECT_EQ(call(*bob_, Method::kGet, "/v1/models/with-a-version").status, 404);
    EXPECT_EQ(create(*ada_, {{"name", "of-ada"}}), 201);
    EXPECT_EQ(create(*admin_, {{"name", "of-an-admin"}, {"owner", "bob"}}), 201);
}

}  // namespace
}  // namespace atl::store
