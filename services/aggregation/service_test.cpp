#include "services/aggregation/service.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "services/aggregation/testing/aggregation_fixture.h"
#include "shared/digest/digest.h"
#include "shared/http/testing/test_server.h"
#include "shared/safetensors/safetensors.h"
#include "shared/service/testing/openapi_check.h"

namespace atl::aggregation {
namespace {

const std::vector<round::RefusedUpdate> kNoneRefused;

TEST_F(AggregationTest, TheOpenApiDocumentFitsTheRoutes) {
    for (const auto& fault : service::openapi_faults(definition().openapi, server_->server(), "aggregation"))
        ADD_FAILURE() << fault;
}

TEST_F(AggregationTest, EveryReadingRouteAnswersAsTheDocumentSays) {
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(commit(save_plan, claim(), round::cut_into_parts({{"model.safetensors", 10}}, 10), Json::array()));
    ASSERT_TRUE(commit(save_part, claim(), std::string(64, 'b')));
    ASSERT_TRUE(commit(save_version, claim(), Published{std::string(64, 'e'), std::string(64, 'f')}));
    auto second = closed(2);
    second.data["strategy"]["outer"] = {{"optimizer", "nesterov"}, {"lr", 0.7}, {"momentum", 0.9}};
    ASSERT_TRUE(take(second).ok());
    const Claim planning = claim();
    const round::ClosedRound round = load_round(*pool_->acquire().value(), planning.aggregation).value();
    ASSERT_TRUE(commit(save_failure, planning, "a fault", std::vector{round::RefusedUpdate{round.updates[0], "NaN"}}));
    ASSERT_TRUE(take(closed(3)).ok());
    query(
        "INSERT INTO dead_letters (consumer, event_id, topic, key, value, error) VALUES ('c', 'e1', 't', 'k', '{}', "
        "'why')");
    for (const char* path :
         {"/v1/strategies", "/v1/aggregations", "/v1/aggregations/j1/1", "/v1/aggregations/j1/2", "/v1/dead-letters",
          "/v1/aggregations/j1/3", "/v1/aggregations/j1/4", "/v1/aggregations/j1/x"})
        (void)get(path);
    EXPECT_EQ(answers_.unread(), std::vector<std::string>());
}

TEST_F(AggregationTest, ARoundOfWhichNoEventHasToldIsTakenUpWhenItIsAskedFor) {
    const auto ask = [&](const char* path) {
        return call(http::Method::kPut, path, Json::object(), auth::Role::kAdmin);
    };
    EXPECT_EQ(ask("/v1/aggregations/j1/1").status, 404) << "dispatch knows no such round";
    dispatch_.add(closed(1).data);
    const auto first = ask("/v1/aggregations/j1/1");
    ASSERT_EQ(first.status, 200) << first.body;
    EXPECT_EQ(first.json().value().at("state"), "planning");
    EXPECT_EQ(ask("/v1/aggregations/j1/1").json().value().at("id"), first.json().value().at("id")) << "once";
    ASSERT_TRUE(take(closed(1)).ok());
    EXPECT_EQ(get("/v1/aggregations?job=j1").value()["items"].size(), 1U) << "the event came after all";
    Json odd = closed(2).data;
    odd["strategy"] = {{"name", "none"}};
    dispatch_.add(odd);
    EXPECT_EQ(ask("/v1/aggregations/j1/2").json().error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(ask("/v1/aggregations/j1/x").json().error().field, "round");
}

TEST_F(AggregationTest, AClosedRoundIsRecordedOnceAndShown) {
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(take(closed(2)).ok());
    const Json one = get("/v1/aggregations/j1/1").value();
    EXPECT_EQ(one["state"], "planning");
    EXPECT_EQ(one["updates"].size(), 1U);
    EXPECT_TRUE(one["version"].is_null());
    const Json page = get("/v1/aggregations?job=j1&limit=1").value();
    EXPECT_EQ(page["items"].size(), 1U);
    const Json rest = get("/v1/aggregations?job=j1&after=" + page["next"].get<std::string>()).value();
    EXPECT_EQ(rest["items"][0]["round"], 2);
    EXPECT_TRUE(rest["next"].is_null());
    EXPECT_TRUE(get("/v1/aggregations?job=other").value()["items"].empty());
}

TEST_F(AggregationTest, WrongRequestsAreRefusedByName) {
    EXPECT_EQ(get("/v1/aggregations/j1/1").error().code, ErrorCode::kNotFound);
    EXPECT_EQ(get("/v1/aggregations/j1/x").error().field, "round");
    EXPECT_EQ(get("/v1/aggregations?after=x").error().field, "after");
    auto facility = server_->client(auth::Role::kFacility);
    EXPECT_EQ(facility.get_json("/v1/aggregations").error().code, ErrorCode::kPermissionDenied);
    EXPECT_EQ(server_->client_without_token().get_json("/v1/aggregations").error().code, ErrorCode::kUnauthenticated);
}

TEST_F(AggregationTest, DeadLettersAreShownAndOnlyWritersReplayThem) {
    query(
        "INSERT INTO dead_letters (consumer, event_id, topic, key, value, error) VALUES ('c', 'e1', 't', 'k', '{}', "
        "'why')");
    auto viewer = server_->client(auth::Role::kViewer);
    const Json letters = viewer.get_json("/v1/dead-letters").value();
    ASSERT_EQ(letters.at("items").size(), 1U);
    EXPECT_EQ(letters.at("items")[0].at("id"), "e1");
    EXPECT_EQ(letters.at("items")[0].at("error"), "why");
    EXPECT_EQ(viewer.post_json("/v1/dead-letters/e1/replay", Json::object()).error().code,
              ErrorCode::kPermissionDenied);
    auto writer = server_->client(auth::Role::kOperator);
    EXPECT_EQ(writer.post_json("/v1/dead-letters/e1/replay", Json::object()).error().field, "e1");
}

TEST_F(AggregationTest, EachPartIsHeldByOneWorkerAndTheLastOneOpensPublishing) {
    ASSERT_TRUE(take(closed(1)).ok());
    const Claim planning = claim();
    EXPECT_EQ(planning.step, Step::kPlan);
    EXPECT_FALSE(claim_work(*pool_->acquire().value(), {std::chrono::seconds(60), "other"}).value().has_value());
    const auto parts = round::cut_into_parts({{"model.safetensors", 20}}, 10);
    ASSERT_TRUE(commit(save_plan, planning, parts, Json::array()));
    EXPECT_FALSE(commit(save_plan, planning, parts, Json::array())) << "a plan counts once";
    const Claim first = claim("one");
    const Claim second = claim("two");
    EXPECT_NE(first.number, second.number);
    EXPECT_FALSE(claim_work(*pool_->acquire().value(), {std::chrono::seconds(60), "three"}).value().has_value());
    ASSERT_TRUE(commit(save_part, first, std::string(64, 'b')));
    EXPECT_FALSE(commit(save_part, first, std::string(64, 'c'))) << "a part counts once";
    ASSERT_TRUE(commit(save_part, second, std::string(64, 'd')));
    const Claim publishing = claim();
    EXPECT_EQ(publishing.step, Step::kPublish);
    ASSERT_TRUE(commit(save_version, publishing, Published{std::string(64, 'e'), {}}));
    EXPECT_FALSE(commit(save_version, publishing, Published{std::string(64, 'e'), {}}));
    EXPECT_FALSE(commit(save_failure, publishing, "too late", kNoneRefused));
    EXPECT_EQ(query("SELECT state FROM aggregations").text(0, "state"), "completed");
}

TEST_F(AggregationTest, WhatAdaptersLostIsKeptBesideTheirParts) {
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(
        commit(save_plan, claim(), round::cut_into_parts({{"adapter_model.safetensors", 20}}, 10), Json::array()));
    ASSERT_TRUE(commit(save_part, claim(), MadePart{std::string(64, 'b'), Json::parse("[[0.25], [0.5, 2.0]]")}));
    ASSERT_TRUE(commit(save_part, claim(), MadePart{std::string(64, 'c'), Json::parse("[[], []]")}));
    const Claim publishing = claim();
    ASSERT_EQ(publishing.step, Step::kPublish);
    const auto lost = load_statistics(*pool_->acquire().value(), publishing.aggregation).value();
    EXPECT_DOUBLE_EQ(round::relative_error(lost).value(), std::sqrt(0.25 / 2.5));
    EXPECT_EQ(round::relative_error({lost[0], Json()}).error().code, ErrorCode::kUnavailable) << "it has not been made";
    EXPECT_EQ(round::relative_error({lost[1]}).value(), 0);
}

TEST_F(AggregationTest, PartsThatTheStoreHasLostAreMadeAgain) {
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(commit(save_plan, claim(), round::cut_into_parts({{"model.safetensors", 30}}, 10), Json::array()));
    const Claim first = claim();
    ASSERT_TRUE(commit(save_part, first, std::string(64, 'b')));
    ASSERT_TRUE(commit(save_part, claim(), std::string(64, 'c')));
    ASSERT_TRUE(commit(save_part, claim(), std::string(64, 'b')));
    const Claim publishing = claim();
    ASSERT_EQ(publishing.step, Step::kPublish);
    ASSERT_TRUE(commit(reopen_parts, publishing, std::set{std::string(64, 'b')}));
    EXPECT_FALSE(commit(reopen_parts, publishing, std::set{std::string(64, 'b')})) << "a claim does so once";
    EXPECT_FALSE(commit(save_part, first, std::string(64, 'b'))) << "of before";
    const Claim again = claim();
    EXPECT_EQ(std::pair(again.step, again.number), std::pair(Step::kPart, first.number));
    ASSERT_TRUE(commit(save_part, again, std::string(64, 'b')));
    ASSERT_TRUE(commit(save_part, claim(), std::string(64, 'b')));
    EXPECT_EQ(claim().step, Step::kPublish);
}

TEST_F(AggregationTest, AnUpdateThatIsLeftOutBeginsTheAverageAnewAndOlderPartsCountNoMore) {
    ASSERT_TRUE(take(closed_by_two()).ok());
    const auto parts = round::cut_into_parts({{"model.safetensors", 20}}, 10);
    ASSERT_TRUE(commit(save_plan, claim(), parts, Json::array()));
    const Claim first = claim("one");
    const Claim second = claim("two");
    const round::ClosedRound round = load_round(*pool_->acquire().value(), first.aggregation).value();
    ASSERT_TRUE(commit(save_refusal, first, std::vector{round::RefusedUpdate{round.updates[1], "NaN"}}));
    EXPECT_FALSE(commit(save_refusal, first, std::vector{round::RefusedUpdate{round.updates[0], "NaN"}}))
        << "a claim refuses once";
    EXPECT_FALSE(commit(save_refusal, second, std::vector{round::RefusedUpdate{round.updates[1], "NaN"}}));
    EXPECT_FALSE(commit(save_part, second, std::string(64, 'b')));
    const Claim again = claim();
    ASSERT_EQ(again.step, Step::kPlan);
    EXPECT_EQ(again.plan, 1);
    ASSERT_TRUE(commit(save_plan, again, parts, Json::array()));
    const Claim renewed = claim("one");
    EXPECT_EQ(std::pair(renewed.number, renewed.lease.fence), std::pair(first.number, first.lease.fence));
    EXPECT_FALSE(commit(save_part, first, std::string(64, 'b'))) << "of the earlier plan";
    EXPECT_TRUE(commit(save_part, renewed, std::string(64, 'c')));
    const round::ClosedRound left = load_round(*pool_->acquire().value(), first.aggregation).value();
    ASSERT_EQ(left.updates.size(), 1U);
    EXPECT_EQ(left.updates[0].task, "t1");
    EXPECT_EQ(left.refused[0].reason, "NaN");
    EXPECT_EQ(get("/v1/aggregations/j1/1").value()["refused"][0]["task"], "t2");
}

TEST_F(AggregationTest, PartsAreMeasuredOnceThenTheSharesAreDecidedAndTheyAreMade) {
    ASSERT_TRUE(take(closed(1)).ok());
    const auto parts = round::cut_into_parts({{"model.safetensors", 20}}, 10);
    ASSERT_TRUE(commit(save_plan, claim(), parts, Json()));
    EXPECT_EQ(get("/v1/aggregations/j1/1").value()["state"], "measuring");
    const Claim first = claim();
    const Claim second = claim();
    ASSERT_EQ(first.step, Step::kMeasure);
    EXPECT_FALSE(commit(save_part, first, std::string(64, 'b'))) << "it is not to be made yet";
    ASSERT_TRUE(commit(save_measured, first, Json::parse("[[0.1], [1.0, 1e300]]")));
    EXPECT_FALSE(commit(save_measured, first, Json::parse("[[0.3], []]"))) << "a part counts once";
    EXPECT_FALSE(claim_work(*pool_->acquire().value(), {std::chrono::seconds(60), "w"}).value().has_value());
    ASSERT_TRUE(commit(save_measured, second, Json::parse("[[1e-300], []]")));
    const Claim preparing = claim();
    ASSERT_EQ(preparing.step, Step::kPrepare);
    EXPECT_EQ(load_statistics(*pool_->acquire().value(), preparing.aggregation).value(),
              (std::vector{Json::parse("[[0.1], [1.0, 1e300]]"), Json::parse("[[1e-300], []]")}));
    const Json made_of = {{{"facility", "leonardo"}, {"version", std::string(64, 'a')}, {"norm", 5}, {"counted", 0.5}}};
    ASSERT_TRUE(commit(save_prepared, preparing, std::vector{0.1, 1e300}, made_of));
    EXPECT_FALSE(commit(save_prepared, preparing, std::vector{7.0}, Json::array()));
    const Claim made = claim();
    ASSERT_EQ(made.step, Step::kPart);
    EXPECT_FALSE(commit(save_measured, made, Json::parse("[[0.1], []]")));
    ASSERT_TRUE(commit(save_part, made, std::string(64, 'b')));
    ASSERT_TRUE(commit(save_part, claim(), std::string(64, 'c')));
    EXPECT_EQ(load_round(*pool_->acquire().value(), made.aggregation)->statistics, (std::vector{0.1, 1e300}));
    ASSERT_TRUE(commit(save_version, claim(), Published{std::string(64, 'e'), {}}));
    ASSERT_TRUE(take(closed(2)).ok());
    const auto earlier = load_round(*pool_->acquire().value(), made.aggregation + 1)->earlier;
    ASSERT_EQ(earlier.size(), 1U);
    EXPECT_EQ(earlier[0].norm, 2.5) << "what counted of it";
    EXPECT_EQ(earlier[0].effort, 1);
    EXPECT_EQ(earlier[0].update, 0U) << "the same site's";
}

TEST_F(AggregationTest, WhatWasMeasuredIsMeasuredAgainWhenAnUpdateIsLeftOut) {
    ASSERT_TRUE(take(closed_by_two()).ok());
    const auto parts = round::cut_into_parts({{"model.safetensors", 10}}, 10);
    ASSERT_TRUE(commit(save_plan, claim(), parts, Json()));
    ASSERT_TRUE(commit(save_measured, claim(), Json::parse("[[1.0]]")));
    ASSERT_TRUE(commit(save_prepared, claim(), std::vector{1.0}, Json::array()));
    const Claim part = claim();
    const round::ClosedRound round = load_round(*pool_->acquire().value(), part.aggregation).value();
    ASSERT_TRUE(commit(save_refusal, part, std::vector{round::RefusedUpdate{round.updates[1], "lost", false}}));
    const Claim again = claim();
    const round::ClosedRound left = load_round(*pool_->acquire().value(), again.aggregation).value();
    EXPECT_TRUE(left.statistics.empty()) << "each was measured beside the other";
    EXPECT_FALSE(left.refused.at(0).is_sites_fault);
    EXPECT_EQ(get("/v1/aggregations/j1/1").value()["refused"][0]["fault"], "store");
    ASSERT_TRUE(commit(save_plan, again, parts, Json()));
    EXPECT_EQ(claim().step, Step::kMeasure);
}

TEST_F(AggregationTest, ARoundGetsTheOptimizersStateThatCameWithItsBase) {
    ASSERT_TRUE(take(closed(1)).ok());
    const Claim first = claim();
    ASSERT_TRUE(commit(save_plan, first, round::cut_into_parts({{"model.safetensors", 10}}, 10), Json::array()));
    ASSERT_TRUE(commit(save_part, claim(), std::string(64, 'b')));
    const Published published{std::string(64, 'e'), std::string(64, 'f')};
    ASSERT_TRUE(commit(save_version, claim(), published));
    auto next = closed(2);
    next.data["base"] = published.version;
    ASSERT_TRUE(take(next).ok());
    ASSERT_TRUE(take(closed(3)).ok());
    auto connection = pool_->acquire().value();
    EXPECT_EQ(load_round(*connection, first.aggregation)->optimizer_state, "");
    EXPECT_EQ(load_round(*connection, first.aggregation + 1)->optimizer_state, published.optimizer_state);
    EXPECT_EQ(load_round(*connection, first.aggregation + 2)->optimizer_state, "") << "another base";
    EXPECT_EQ(load_round(*connection, first.aggregation)->base_is_jobs, false) << "its control variates are others'";
    EXPECT_EQ(load_round(*connection, first.aggregation + 1)->base_is_jobs, true);
    auto of_another_job = closed(1);
    of_another_job.data["job"] = "j2";
    of_another_job.data["base"] = published.version;
    ASSERT_TRUE(take(of_another_job).ok());
    EXPECT_EQ(load_round(*connection, first.aggregation + 3)->base_is_jobs, false);
}

TEST_F(AggregationTest, AggregationsTakeTurnsHoweverManyPartsTheOldestHas) {
    for (const char* job : {"j1", "j2", "j3"}) {
        auto round = closed(1);
        round.data["job"] = job;
        ASSERT_TRUE(take(round).ok());
    }
    std::vector<std::int64_t> ids;
    for (int i = 0; i < 3; ++i) {
        const Claim planning = claim();
        ids.push_back(planning.aggregation);
        ASSERT_TRUE(
            commit(save_plan, planning, round::cut_into_parts({{"model.safetensors", 1000}}, 10), Json::array()));
    }
    const Claim first = claim("a"), second = claim("b"), third = claim("c");
    EXPECT_EQ((std::set{first.aggregation, second.aggregation, third.aggregation}), (std::set{ids[0], ids[1], ids[2]}))
        << "each has a worker";
    ASSERT_EQ(first.aggregation, ids[0]);
    ASSERT_TRUE(commit(save_part, second, MadePart{std::string(64, 'b')}));
    ASSERT_TRUE(commit(save_part, third, MadePart{std::string(64, 'b')}));
    // `first` takes long. Of the other two each gets a few parts and then the other one does.
    std::vector<int> made(3, 0);
    for (int i = 0; i < 48; ++i) {
        const Claim next = claim("b");
        ASSERT_NE(next.aggregation, first.aggregation);
        ++made[static_cast<std::size_t>(std::ranges::find(ids, next.aggregation) - ids.begin())];
        ASSERT_TRUE(commit(save_part, next, MadePart{std::string(64, 'b')}));
        EXPECT_LE(std::abs(made[1] - made[2]), 8) << i;
    }
}

TEST_F(AggregationTest, AWorkerWhoseLeaseWentToAnotherChangesNothing) {
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(commit(save_plan, claim(), round::cut_into_parts({{"model.safetensors", 10}}, 10), Json::array()));
    const Claim slow = claim("slow");
    query("UPDATE parts SET lease_until = now() - interval '1 second'");
    EXPECT_FALSE(pg::renew_lease(*pool_->acquire().value(), slow.lease, std::chrono::seconds(60)).value());
    const Claim fast = claim("fast");
    EXPECT_EQ(fast.attempts, 1) << "it did not fail";
    EXPECT_EQ(fast.deaths, 1);
    EXPECT_FALSE(commit(save_part, slow, std::string(64, 'b')));
    EXPECT_FALSE(commit(save_failure, slow, "a fault", kNoneRefused));
    EXPECT_TRUE(commit(save_part, fast, std::string(64, 'c')));
}

TEST_F(AggregationTest, AnInstanceThatComesBackFreesWhatItHeldAndNothingElse) {
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(commit(save_plan, claim(), round::cut_into_parts({{"model.safetensors", 20}}, 10), Json::array()));
    const Claim mine = claim("host:1");
    claim("host:10");
    for (const auto* table : lease_tables())
        ASSERT_TRUE(pg::give_leases_back(*pool_->acquire().value(), *table, "host:1").ok());
    EXPECT_EQ(claim("host:1").number, mine.number);
    EXPECT_FALSE(claim_work(*pool_->acquire().value(), {std::chrono::seconds(60), "w"}).value().has_value());
    EXPECT_FALSE(commit(save_part, mine, std::string(64, 'b')));
}

TEST_F(AggregationTest, WorkThatIsGivenBackCanBeTakenAfterItsPauseAndOnlyItsOwnFaultsCount) {
    ASSERT_TRUE(take(closed(1)).ok());
    const Claim first = claim();
    ASSERT_TRUE(release(*pool_->acquire().value(), first, std::chrono::seconds(60), /*counts=*/false).ok());
    EXPECT_FALSE(claim_work(*pool_->acquire().value(), {std::chrono::seconds(60), "w"}).value().has_value());
    query("UPDATE aggregations SET lease_until = now() - interval '1 second'");
    const Claim second = claim();
    EXPECT_EQ(second.attempts, 1);
    ASSERT_TRUE(release(*pool_->acquire().value(), second, std::chrono::seconds(-1), /*counts=*/true).ok());
    EXPECT_EQ(claim().attempts, 2);
}

// A store of a base and one update, with one tensor each, that can be in trouble.
struct SmallStore {
    explicit SmallStore(float element) : base(add(1)), update(add(element)) {}

    std::string add(float element) {
        std::vector<safetensors::TensorInfo> tensors = {{"w", safetensors::DType::kF32, {1}, 0, 0}};
        std::string bytes = safetensors::make_header(tensors);
        bytes.append(reinterpret_cast<const char*>(&element), sizeof element);
        const std::string sha256 = digest::sha256(bytes);
        blobs[sha256] = bytes;
        store_client::Manifest manifest;
        manifest.files.push_back({"model.safetensors", bytes.size(), {{sha256, bytes.size()}}});
        versions[store_client::manifest_digest(manifest)] = manifest;
        return store_client::manifest_digest(manifest);
    }
    std::string blob_of(const std::string& version) { return versions.at(version).files[0].chunks[0].sha256; }

    std::map<std::string, std::string> blobs;
    std::map<std::string, store_client::Manifest> versions;
    std::string base;
    std::string update;
    std::atomic<int> trouble = 0;         // the status that it answers for ...
    std::atomic<bool> with_blobs = true;  // ... blobs alone, or for all
    http::TestServer server{[this](http::Server& routes) {
        const auto answer = [this](bool blob, auto&& good) {
            if (trouble != 0 && (blob || !with_blobs)) return http::Response::empty(trouble);
            return good();
        };
        routes.route(http::Method::kGet, "/v1/versions/:digest", http::Access::open(),
                     [this, answer](const http::Request& asked) {
                         return answer(false, [&] {
                             const auto at = versions.find(asked.param("digest"));
                             if (at == versions.end()) return http::Response::problem(not_found("no such version"), "");
                             return http::Response::json(200, {{"manifest", store_client::to_json(at->second)}});
                         });
                     });
        routes.route(http::Method::kGet, "/v1/blobs/:sha256", http::Access::open(),
                     [this, answer](const http::Request& asked) {
                         return answer(true, [&] {
                             const auto at = blobs.find(asked.param("sha256"));
                             if (at == blobs.end()) return http::Response::problem(not_found("no such blob"), "");
                             http::Response response = http::Response::empty(200);
                             response.body = at->second;
                             return response;
                         });
                     });
    }};
};

// A closed round of what that store holds.
events::Event round_of(const SmallStore& store, events::Event closed) {
    closed.data["base"] = store.base;
    closed.data["updates"][0]["version"] = store.update;
    return closed;
}

TEST_F(AggregationTest, TroubleOfTheStoreIsWaitedForAndRefusesNoUpdate) {
    SmallStore store(2);
    ASSERT_TRUE(take(round_of(store, closed(1))).ok());
    const auto work = [&] {
        ASSERT_TRUE(work_once(store.server).ok());
        query("UPDATE aggregations SET lease_until = '-infinity'");
        query("UPDATE parts SET lease_until = '-infinity'");
    };
    const auto state = [&] { return get("/v1/aggregations/j1/1").value()["state"]; };
    for (const char* expected : {"planning", "measuring"}) {
        for (const int status : {500, 401, 403, 429}) {
            store.trouble = status;
            for (const bool blobs : {false, true}) {
                store.with_blobs = blobs;
                const int attempts = status == 429 ? 2 : 12;  // the client itself repeats that, with pauses
                for (int attempt = 0; attempt < attempts; ++attempt) work();
                ASSERT_EQ(state(), expected) << status;
            }
        }
        store.trouble = 0;
        work();
    }
    EXPECT_EQ(get("/v1/aggregations/j1/1").value()["refused"], Json::array());
    work();
    EXPECT_EQ(state(), "averaging") << "it went on where it was";
    EXPECT_EQ(query("SELECT 1 FROM outbox").size(), 0);
}

TEST_F(AggregationTest, ABlobThatIsGoneIsAskedForAgainBeforeItsUpdateIsRefused) {
    SmallStore store(2);
    ASSERT_TRUE(take(round_of(store, closed(1))).ok());
    store.blobs.erase(store.blob_of(store.update));
    for (int attempt = 1; attempt <= 10; ++attempt) {
        EXPECT_EQ(get("/v1/aggregations/j1/1").value()["state"], "planning") << attempt;
        ASSERT_TRUE(work_once(store.server).ok());
        query("UPDATE aggregations SET lease_until = '-infinity'");
    }
    const Json failed = get("/v1/aggregations/j1/1").value();
    EXPECT_EQ(failed["state"], "failed");
    ASSERT_EQ(failed["refused"].size(), 1U) << failed;
    EXPECT_NE(failed["refused"][0]["reason"].get<std::string>().find("leonardo"), std::string::npos) << failed;
}

TEST_F(AggregationTest, AReasonIsOfABoundedLengthHoweverMuchThereIsToSay) {
    store_client::Manifest base;
    base.files.push_back({"config.json", 1, {{std::string(64, 'c'), 1}}});
    const http::TestServer store([&](http::Server& server) {
        server.route(http::Method::kGet, "/v1/versions/:digest", http::Access::open(), [&](const http::Request& asked) {
            if (asked.param("digest") == store_client::manifest_digest(base))
                return http::Response::json(200, {{"manifest", store_client::to_json(base)}});
            return http::Response::problem(not_found(std::string(1 << 20, 'x')), "");
        });
    });
    auto event = closed(1);
    event.data["base"] = store_client::manifest_digest(base);
    ASSERT_TRUE(take(event).ok());
    ASSERT_TRUE(work_once(store).ok());
    const Json failed = get("/v1/aggregations/j1/1").value();
    const std::string reason = failed.at("refused").at(0).at("reason");
    EXPECT_EQ(reason.size(), 500U);
    EXPECT_NE(reason.find("leonardo"), std::string::npos) << reason;
    EXPECT_TRUE(reason.ends_with("xx…")) << reason;
    EXPECT_TRUE(failed.at("error").get<std::string>().starts_with(reason)) << failed;
    EXPECT_LT(query("SELECT event FROM outbox").text(0, "event").size(), 2000U);
}

TEST_F(AggregationTest, AReasonThatTheDatabaseCannotHoldIsKeptWithoutThat) {
    const http::TestServer store([&](http::Server& server) {
        server.route(http::Method::kGet, "/v1/versions/:digest", http::Access::open(), [&](const http::Request&) {
            return http::Response::problem(not_found(std::string("a\0b is not there", 16)), "");
        });
    });
    ASSERT_TRUE(take(closed(1)).ok());
    const auto done = work_once(store);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const Json failed = get("/v1/aggregations/j1/1").value();
    EXPECT_EQ(failed.at("state"), "failed");
    EXPECT_NE(failed.at("error").get<std::string>().find("ab is not there"), std::string::npos) << failed;
}

TEST_F(AggregationTest, ARowThatCannotBeReadKeepsNoOtherFromItsEnd) {
    const http::TestServer store([&](http::Server& server) {
        server.route(http::Method::kGet, "/v1/versions/:digest", http::Access::open(),
                     [&](const http::Request&) { return http::Response::problem(not_found("no such version"), ""); });
    });
    ASSERT_TRUE(take(closed(1)).ok());
    query("UPDATE aggregations SET refused = '[7]', attempts = 100");  // its end is to be told, and cannot be
    ASSERT_TRUE(take(closed(2)).ok());
    Settings settings = settings_of(store);
    settings.workers = 1;
    metrics::Registry metrics;
    const pg::LeaseWorkers workers(*pool_, worker_options(*pool_, conninfo_, settings, metrics, ""));
    EXPECT_TRUE(eventually(
        [&] { return query("SELECT state FROM aggregations WHERE round = 2").text(0, "state") == "failed"; }));
    EXPECT_EQ(query("SELECT state FROM aggregations WHERE round = 1").text(0, "state"), "planning");
}

TEST_F(AggregationTest, WorkThatCanNeitherBeDoneNorGivenBackIsNotRenewedAndGoesToAnother) {
    ASSERT_TRUE(take(closed(1)).ok());
    // The database loses the table between claiming and giving back, while the store is asked for the base.
    const http::TestServer store([&](http::Server& server) {
        server.route(http::Method::kGet, "/v1/versions/:digest", http::Access::open(), [&](const http::Request&) {
            query("ALTER TABLE IF EXISTS aggregations RENAME TO away");
            return http::Response::empty(503);
        });
    });
    EXPECT_FALSE(work_once(store).ok());
    query("ALTER TABLE away RENAME TO aggregations");
    ASSERT_EQ(query("SELECT count(*)::int AS n FROM aggregations WHERE lease_until > now()").integer(0, "n"), 1)
        << "it was not given back";
    EXPECT_TRUE(held_.list().empty()) << "nobody renews it";
    query("UPDATE aggregations SET lease_until = now()");
    EXPECT_EQ(claim("another").deaths, 1);
}

TEST_F(AggregationTest, DeathsOfTheProcessAreWaitedAfterAndOnlyManyInARowEndAnAggregation) {
    std::atomic<int> asked = 0;
    const http::TestServer store([&](http::Server& server) {
        server.route(http::Method::kGet, "/v1/versions/:digest", http::Access::open(), [&](const http::Request&) {
            ++asked;
            return http::Response::empty(503);
        });
    });
    ASSERT_TRUE(take(closed(1)).ok());
    const auto state = [&] { return get("/v1/aggregations/j1/1").value(); };
    for (int death = 0; death < 12; ++death) {
        EXPECT_EQ(claim().deaths, death);
        query("UPDATE aggregations SET lease_until = now() - interval '1 second'");
    }
    ASSERT_TRUE(work_once(store).ok());
    EXPECT_EQ(asked, 0) << "it waits";
    EXPECT_EQ(query("SELECT 1 FROM aggregations WHERE lease_until > now() + interval '10 minutes'").size(), 1);
    query("UPDATE aggregations SET lease_until = '-infinity'");
    ASSERT_TRUE(work_once(store).ok());
    EXPECT_GT(asked, 0) << "then it is tried again";
    EXPECT_EQ(state()["state"], "planning") << state();
    const auto die = [&](const char* before) {
        query(std::string(
                  "UPDATE aggregations SET in_hand = true, deaths = 19, lease_until = '-infinity', died_at = now()"
                  " - interval '") +
              before + "'");
    };
    die("2 hours");
    EXPECT_EQ(claim().deaths, 1) << "that was long ago";
    die("1 minute");
    ASSERT_TRUE(work_once(store).ok());
    EXPECT_EQ(state()["state"], "failed");
    EXPECT_NE(state()["error"].get<std::string>().find("20 times"), std::string::npos) << state();
}

}  // namespace
}  // namespace atl::aggregation
