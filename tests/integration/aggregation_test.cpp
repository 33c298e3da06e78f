// The aggregation service as processes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "services/aggregation/testing/fake_dispatch.h"
#include "shared/aggregate/files.h"
#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/json/json.h"
#include "shared/kafka/kafka.h"
#include "shared/pg/pg.h"
#include "shared/safetensors/file.h"
#include "shared/store_client/transfer.h"
#include "tests/integration/aggregation_process_fixture.h"

namespace atl {
namespace {

TEST_F(AggregationProcessTest, AClosedRoundBecomesTheWeightedMeanOfItsUpdates) {
    const ServiceProcess service("aggregation", aggregation_config({{"part_bytes", 8192}}), root());
    const Json karolina = store_update("karolina", {.offset = 1}, 100);
    const Json leonardo = store_update("leonardo", {.offset = 4}, 200);
    close_round({leonardo, karolina});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
    EXPECT_EQ(event["data"]["job"], "j1");
    EXPECT_EQ(event["data"]["model"], "demo");
    expect_average(event["data"]["version"], {"karolina", "leonardo"}, {100, 200});
    http::Client client(transfer_.store);
    const Json version = client.get_json("/v1/versions/" + event["data"]["version"].get<std::string>()).value();
    EXPECT_EQ(version["kind"], "global");
    EXPECT_EQ(version["round"], 1);
    EXPECT_EQ(version["contributions"][1]["facility"], "leonardo");
    EXPECT_EQ(version["contributions"][1]["weight"], 2.0 / 3);
}

TEST_F(AggregationProcessTest, AForgedClosedRoundChangesNothingAndTheGenuineOneIsAggregated) {
    const ServiceProcess service("aggregation", aggregation_config({}), root());
    const Json karolina = store_update("karolina", {.offset = 1}, 100);
    const Json leonardo = store_update("leonardo", {.offset = 4}, 200);
    tell_closed({{"job", "j1"},
                 {"round", 1},
                 {"model", "victim"},
                 {"base", karolina["version"]},
                 {"strategy", {{"name", "fedavg"}}},
                 {"updates", {karolina}}},
                "forged");
    http::ClientOptions options = transfer_.store;
    options.base_url = service.url();
    http::Client client(options);
    Json letters;
    ASSERT_TRUE(eventually([&] {
        letters = client.get_json("/v1/dead-letters").value().at("items");
        return letters.size() == 1;
    })) << service.log();
    EXPECT_EQ(letters[0]["id"], "forged");
    EXPECT_EQ(letters[0]["error"], "id: there is no such round");
    EXPECT_EQ(query("SELECT 1 FROM aggregations").size(), 0);
    close_round({leonardo, karolina});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
    EXPECT_EQ(event["data"]["model"], "demo");
    expect_average(event["data"]["version"], {"karolina", "leonardo"}, {100, 200});
}

TEST_F(AggregationProcessTest, ASiteThatRenamesItsFilesCountsAndTheResultHasTheBases) {
    const ServiceProcess service("aggregation", aggregation_config({}), root());
    const std::string base = store_model("base", {.offset = 3});
    close_round({store_update("a-renamed", {.offset = 1, .file = "weights.safetensors"}, 100),
                 store_update("leonardo", {.offset = 4}, 100)},
                {{"base", base}});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
    EXPECT_TRUE(event["data"]["updates_refused"].empty()) << event;
    const fs::path got = download(event["data"]["version"], "got");
    EXPECT_FALSE(fs::exists(got / "weights.safetensors"));
    fs::rename(root() / "a-renamed" / "weights.safetensors", root() / "a-renamed" / "model.safetensors");
    expect_average(event["data"]["version"], {"a-renamed", "leonardo"}, {100, 100});
}

TEST_F(AggregationProcessTest, AnUpdateThatClaimsAllTokensWeighsNoMoreThanItsShareAndAFarOneChangesNothing) {
    const ServiceProcess service("aggregation", aggregation_config({{"part_bytes", 4096}, {"workers", 4}}), root());
    const std::string base = store_model("base", {});
    const Json claims = store_update("a-claims", {.offset = 0.5F}, std::int64_t{1} << 40);
    const Json honest = store_update("honest", {.offset = 0.25F}, 100);
    const Json far = store_update("far", {.offset = 100}, 100);
    close_round({claims, honest, far}, {{"base", base}, {"quorum", 2}, {"strategy", kDefault}});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
    EXPECT_TRUE(event["data"]["updates_refused"].empty()) << "how far one goes refuses none";
    expect_measured(event["data"]["version"], {"a-claims", "far", "honest"}, {0x1p40, 100, 100}, "base", kDefault);
    http::Client client(transfer_.store);
    const Json version = client.get_json("/v1/versions/" + event["data"]["version"].get<std::string>()).value();
    const Json& made = version["contributions"];
    EXPECT_EQ(made[0]["weight"], 2.0 / 3);
    EXPECT_EQ(made[0]["counted"], 1);
    EXPECT_FALSE(made[0].value("cosine", Json()).is_number()) << "the others' mean is mostly what counts for nothing";
    EXPECT_EQ(made[1]["facility"], "far");
    EXPECT_NEAR(made[1]["cosine"].get<double>(), 1, 1e-6);
    EXPECT_NEAR(made[1]["norm"].get<double>(), 100 * std::sqrt(5003), 0.1) << "of 5003 elements, each 100 away";
    EXPECT_EQ(made[1]["counted"], 0);
    EXPECT_NEAR(made[2]["norm"].get<double>(), 0.25 * std::sqrt(5003), 0.01);

    // Of two the rounds before say what is usual.
    const Json wild = store_update("a-claims", {.offset = 50}, 1);
    close_round({wild, honest}, {{"base", base}, {"round", 2}, {"quorum", 1}, {"strategy", kDefault}});
    ASSERT_EQ(result()["type"], "atoll.aggregation.completed.v1");
    const Json second = query("SELECT contributions FROM aggregations WHERE round = 2").json(0, "contributions");
    EXPECT_EQ(second[0]["counted"], 0) << second;
    EXPECT_EQ(second[1]["counted"], 1) << second;

    // Who was assigned as much as the others weighs no more than they do, whatever it claims.
    Json assigned = {claims, honest, store_update("third", {.offset = 0.3F}, 100)};
    for (Json& one : assigned) one["assigned"] = {{"tokens", 1000}};
    close_round(assigned.get<std::vector<Json>>(), {{"base", base}, {"round", 4}, {"strategy", kDefault}});
    ASSERT_EQ(result()["type"], "atoll.aggregation.completed.v1");
    const Json fourth = query("SELECT contributions FROM aggregations WHERE round = 4").json(0, "contributions");
    for (const Json& one : fourth) EXPECT_NEAR(one["weight"].get<double>(), 1.0 / 3, 1e-12) << fourth;

    // Turned off, any goes; people see its length all the same.
    close_round({honest, far}, {{"base", base}, {"round", 3}, {"strategy", kPlainMean}});
    ASSERT_EQ(result()["type"], "atoll.aggregation.completed.v1");
    const Json third = query("SELECT contributions FROM aggregations WHERE round = 3").json(0, "contributions");
    for (const Json& one : third) {
        EXPECT_TRUE(one.contains("norm")) << third;
        EXPECT_EQ(one.value("counted", 1.0), 1) << third;
    }
}

TEST_F(AggregationProcessTest, TheSameUpdatesGiveTheSameBytesWhateverThePartsAndTheWorkers) {
    std::vector<Json> updates;
    const std::string base = store_model("base", {});
    for (int i = 1; i <= 4; ++i)  // the last two go too far
        updates.push_back(store_update("site-" + std::to_string(i), {.offset = 0.1F * static_cast<float>(i)}, 100));
    std::vector<std::string> bytes;
    for (const auto& [part_bytes, workers] : {std::pair{4096, 4}, {5000, 1}, {1 << 20, 2}}) {
        const std::string job = "j" + std::to_string(part_bytes);
        const ServiceProcess service(
            "aggregation", aggregation_config({{"part_bytes", part_bytes}, {"workers", workers}}), root(), "-" + job);
        close_round(updates, {{"job", job}, {"base", base}, {"strategy", kDefault}});
        const Json event = result();
        ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
        bytes.push_back(read_file(download(event["data"]["version"], job) / "model.safetensors").value());
        const Json made =
            query("SELECT contributions FROM aggregations WHERE job = '" + job + "'").json(0, "contributions");
        EXPECT_NEAR(made[3]["counted"].get<double>(), 1.4 * 0.2 / 0.4, 1e-4) << made;
    }
    EXPECT_TRUE(bytes[0] == bytes[1] && bytes[1] == bytes[2]);
}

TEST_F(AggregationProcessTest, AnAggregatorKilledWhileItMeasuresIsMadeUpFor) {
    const Json own = {{"part_bytes", 4096}, {"workers", 4}, {"lease_s", 2}};
    std::optional<ServiceProcess> first(std::in_place, "aggregation", aggregation_config(own), root(), "-first");
    constexpr std::int64_t kElements = 100'000;  // about 100 parts
    pg::Connection holder = hold_after(20, 0, "statistics");
    const Json karolina = store_update("karolina", {.elements = kElements, .offset = 1}, 100);
    const Json far = store_update("far", {.elements = kElements, .offset = 100}, 100);
    close_round({karolina, store_update("leonardo", {.elements = kElements, .offset = 2}, 200), far},
                {{"base", store_model("base", {.elements = kElements})}, {"quorum", 2}, {"strategy", kDefault}});
    ASSERT_TRUE(eventually([&] {
        return query("SELECT count(*) AS n FROM parts WHERE stage = 'measured'").integer(0, "n") >= 20;
    })) << first->log();
    kill_held(first, holder);
    const ServiceProcess second("aggregation", aggregation_config(own), root(), "-second");
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event << second.log();
    expect_measured(event["data"]["version"], {"far", "karolina", "leonardo"}, {100, 100, 200}, "base", kDefault);
}

TEST_F(AggregationProcessTest, AnUpdateThatRotsInTheStoreIsRefusedHoweverManyThereAre) {
    const ServiceProcess service("aggregation", aggregation_config({}), root());
    // Nine and the base share the room to read ahead, so that a chunk is read in two windows.
    constexpr std::int64_t kElements = 1'500'000;
    const std::string base = store_model("base", {.elements = kElements});
    Json updates = Json::array();
    for (int i = 0; i < 9; ++i)
        updates.push_back(store_update("site" + std::to_string(i),
                                       {.elements = kElements, .offset = 1 + 0.25F * static_cast<float>(i)}, 1));
    const std::string chunk = rot("site4", "model.safetensors", kElements);
    close_round(updates, {{"base", base}, {"quorum", 8}});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
    const Json refused = event["data"]["updates_refused"];
    ASSERT_EQ(refused.size(), 1U) << refused;
    EXPECT_EQ(refused[0]["facility"], "site4");
    EXPECT_NE(refused[0]["reason"].get<std::string>().find(chunk), std::string::npos) << refused;
    EXPECT_EQ(refused[0]["fault"], "store") << "it was good when it was handed in";
    const Json damaged = http::Client(transfer_.store).get_json("/v1/damaged-blobs").value().at("items");
    ASSERT_EQ(damaged.size(), 1U) << "the store was told";
    EXPECT_EQ(damaged[0].at("sha256"), chunk);
}

// A byte of what a plan reads, with which it cannot be read.
TEST_F(AggregationProcessTest, WhatRotsWhereAPlanLooksIsTheStoresFaultToo) {
    const ServiceProcess service("aggregation", aggregation_config({}), root());
    const std::string base = store_model("base", {}), base_adapter = store_adapter("adapter", 0);
    const Json variates = {{"name", "fedavg"}, {"weighting", "uniform"}, {"control_variate", 0.7}};
    struct Rot {
        std::string file;
        std::size_t at;  // 7: of a header's length; 10: of its text
    };
    int round = 0, site = 0;
    for (const Rot& rotten : {Rot{"model.safetensors", 7}, Rot{"model.safetensors", 10},
                              Rot{"control_variate.safetensors", 7}, Rot{"control_variate.safetensors", 10},
                              Rot{"adapter_config.json", 0}, Rot{"adapter_model.safetensors", 10}}) {
        SCOPED_TRACE(rotten.file + " " + std::to_string(rotten.at));
        const bool are_adapters = rotten.file.starts_with("adapter");
        Json updates = Json::array();
        for (int i = 0; i < 3; ++i) {
            const std::string name = "site" + std::to_string(++site);
            const float offset = 0.01F * static_cast<float>(site);
            const std::string version =
                are_adapters
                    ? store_adapter(name, offset)
                    : store_model(name, {.offset = offset, .control_variate = 0.5F + offset, .trained_from = base});
            updates.push_back(
                {{"facility", name}, {"task", "task-" + name}, {"version", version}, {"samples", 1}, {"tokens", 1}});
        }
        const std::string chunk = rot(updates[1]["facility"], rotten.file, rotten.at);
        close_round(updates, {{"base", are_adapters ? base_adapter : base},
                              {"quorum", 2},
                              {"round", ++round},
                              {"strategy", are_adapters ? Json{{"name", "product"}} : variates}});
        const Json event = result();
        ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
        const Json refused = event["data"]["updates_refused"];
        ASSERT_EQ(refused.size(), 1U) << refused;
        EXPECT_EQ(refused[0]["facility"], updates[1]["facility"]);
        EXPECT_EQ(refused[0]["fault"], "store") << refused;
        const Json damaged = http::Client(transfer_.store).get_json("/v1/damaged-blobs").value().at("items");
        EXPECT_TRUE(std::ranges::any_of(damaged, [&](const Json& one) { return one.at("sha256") == chunk; }))
            << "the store was told: " << damaged;
    }
    // Where the base has rotted so that no update seems to fit it none is at fault.
    const std::string flipped = store_model("flipped", {.offset = 50});
    const Json updates = {store_update("a", {.offset = 90}, 1), store_update("b", {.offset = 91}, 1)};
    const std::string header = read_file(root() / "flipped" / "model.safetensors").value();
    rot("flipped", "model.safetensors", header.find("layer.weight"));
    close_round(updates, {{"base", flipped}, {"quorum", 1}, {"round", ++round}, {"strategy", kDefault}});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.failed.v1") << event;
    EXPECT_EQ(event["data"]["updates_refused"], Json::array()) << event;
}

TEST_F(AggregationProcessTest, AnUpdateOfAnotherShapeFailsTheRoundByName) {
    const ServiceProcess service("aggregation", aggregation_config({}), root());
    const Json karolina = store_update("karolina", {}, 100);
    close_round({karolina, store_update("leonardo", {.elements = 4999}, 200)});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.failed.v1") << event;
    const auto error = event["data"]["error"].get<std::string>();
    EXPECT_NE(error.find("layer.weight"), std::string::npos) << error;
    EXPECT_NE(error.find("leonardo"), std::string::npos) << error;
}

TEST_F(AggregationProcessTest, AnUpdateWithNanFailsTheRoundByName) {
    const ServiceProcess service("aggregation", aggregation_config({}), root());
    const Json karolina = store_update("karolina", {}, 100);
    close_round({karolina, store_update("leonardo", {.nan = true}, 200)});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.failed.v1") << event;
    const auto error = event["data"]["error"].get<std::string>();
    EXPECT_NE(error.find("norm.weight"), std::string::npos) << error;
    EXPECT_NE(error.find("leonardo"), std::string::npos) << error;
    EXPECT_EQ(query("SELECT count(*) AS n FROM parts").integer(0, "n"), 0);
}

TEST_F(AggregationProcessTest, UpdatesThatCannotBeUsedAreLeftOutWhileTheQuorumHolds) {
    const ServiceProcess service("aggregation", aggregation_config({{"part_bytes", 4096}, {"workers", 4}}), root());
    const Json karolina = store_update("karolina", {.offset = 1}, 100);
    const Json leonardo = store_update("leonardo", {.offset = 4}, 200);
    Json absent = karolina;
    absent.update({{"facility", "absent"}, {"task", "task-absent"}, {"version", std::string(64, 'f')}});
    close_round(
        {absent, leonardo, karolina, store_update("a-nan", {.nan = true}, 50),
         store_update("ints", {.dtype = safetensors::DType::kI32}, 7), store_update("short", {.elements = 9}, 7)},
        {{"base", karolina["version"]}, {"quorum", 2}});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
    expect_average(event["data"]["version"], {"karolina", "leonardo"}, {100, 200});
    const Json refused = event["data"]["updates_refused"];
    ASSERT_EQ(refused.size(), 4U) << refused;
    EXPECT_EQ(refused[0]["facility"], "a-nan");
    EXPECT_EQ(refused[0]["task"], "task-a-nan");
    EXPECT_NE(refused[0]["reason"].get<std::string>().find("norm.weight"), std::string::npos) << refused;
    EXPECT_EQ(refused[1]["facility"], "absent");
    EXPECT_EQ(refused[2]["facility"], "ints");
    EXPECT_EQ(refused[3]["facility"], "short");
    http::Client client(transfer_.store);
    const Json version = client.get_json("/v1/versions/" + event["data"]["version"].get<std::string>()).value();
    EXPECT_EQ(version["contributions"].size(), 2U);
}

TEST_F(AggregationProcessTest, BelowTheQuorumTheRoundFailsAndSaysWhatWasLeftOut) {
    const ServiceProcess service("aggregation", aggregation_config({}), root());
    const Json karolina = store_update("karolina", {}, 100);
    close_round(
        {karolina, store_update("a-nan", {.nan = true}, 1), store_update("b-nan", {.offset = 1, .nan = true}, 1)},
        {{"base", karolina["version"]}, {"quorum", 2}});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.failed.v1") << event;
    EXPECT_EQ(event["data"]["updates_refused"].size(), 2U) << event;
    const auto error = event["data"]["error"].get<std::string>();
    for (const char* count : {"1", "2"}) EXPECT_NE(error.find(count), std::string::npos) << error;
}

TEST_F(AggregationProcessTest, AKillAfterAnUpdateWasLeftOutChangesNothing) {
    const Json own = {{"part_bytes", 4096}, {"workers", 4}, {"lease_s", 2}};
    std::optional<ServiceProcess> first(std::in_place, "aggregation", aggregation_config(own), root(), "-first");
    constexpr std::int64_t kElements = 100'000;  // about 100 parts
    pg::Connection holder = hold_after(5, 1);
    const Json karolina = store_update("karolina", {.elements = kElements, .offset = 1}, 100);
    const Json leonardo = store_update("leonardo", {.elements = kElements, .offset = 2}, 200);
    close_round({karolina, leonardo, store_update("a-nan", {.elements = kElements, .nan = true}, 50)},
                {{"base", karolina["version"]}, {"quorum", 2}});
    ASSERT_TRUE(eventually([&] {
        return query("SELECT count(*) AS n FROM parts WHERE sha256 IS NOT NULL AND plan = 1").integer(0, "n") >= 5;
    })) << first->log();
    kill_held(first, holder);
    const ServiceProcess second("aggregation", aggregation_config(own), root(), "-second");
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event << second.log();
    expect_average(event["data"]["version"], {"karolina", "leonardo"}, {100, 200});
    EXPECT_EQ(event["data"]["updates_refused"].size(), 1U);
}

TEST_F(AggregationProcessTest, AnAggregatorKilledInTheMiddleOfAPartIsMadeUpFor) {
    const Json own = {{"part_bytes", 4096}, {"workers", 4}, {"lease_s", 2}};
    std::optional<ServiceProcess> first(std::in_place, "aggregation", aggregation_config(own), root(), "-first");
    constexpr std::int64_t kElements = 300'000;  // about 290 parts
    pg::Connection holder = hold_after(20);
    const Json karolina = store_update("karolina", {.elements = kElements, .offset = 1}, 100);
    close_round({karolina, store_update("leonardo", {.elements = kElements, .offset = 2}, 200)});
    ASSERT_TRUE(eventually([&] {
        return query("SELECT count(*) AS n FROM parts WHERE sha256 IS NOT NULL").integer(0, "n") >= 20;
    })) << first->log();
    const auto held = query("SELECT count(*) AS n FROM parts WHERE sha256 IS NULL AND lease_until > now()");
    EXPECT_GT(held.integer(0, "n"), 0) << "it held no part";
    kill_held(first, holder);
    const ServiceProcess second("aggregation", aggregation_config(own), root(), "-second");
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event << second.log();
    expect_average(event["data"]["version"], {"karolina", "leonardo"}, {100, 200});
    EXPECT_EQ(query("SELECT attempts FROM aggregations").integer(0, "attempts"), 1);
}

TEST_F(AggregationProcessTest, PartsThatTheStoreSweptWhileTheAggregationWasAwayAreMadeAgain) {
    const Json own = {{"part_bytes", 4096}, {"workers", 2}, {"lease_s", 2}};
    std::optional<ServiceProcess> first(std::in_place, "aggregation", aggregation_config(own), root(), "-first");
    constexpr std::int64_t kElements = 100'000;  // about 100 parts
    pg::Connection holder = hold_after(5);
    const Json karolina = store_update("karolina", {.elements = kElements, .offset = 1}, 100);
    close_round({karolina, store_update("leonardo", {.elements = kElements, .offset = 2}, 200)});
    const std::string finished = "SELECT sha256 FROM parts WHERE sha256 IS NOT NULL";
    ASSERT_TRUE(eventually([&] { return query(finished).size() >= 5; })) << first->log();
    kill_held(first, holder);
    const auto parts = query(finished);
    for (int i = 0; i < parts.size(); ++i) {
        const std::string sha256 = parts.text(i, "sha256");
        fs::remove(root() / "blobs" / sha256.substr(0, 2) / sha256.substr(2, 2) / sha256);
    }
    const ServiceProcess second("aggregation", aggregation_config(own), root(), "-second");
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event << second.log();
    expect_average(event["data"]["version"], {"karolina", "leonardo"}, {100, 200});
}

TEST_F(AggregationProcessTest, AnAggregatorKilledAtItsCommitPublishesOnce) {
    std::optional<ServiceProcess> first(std::in_place, "aggregation", aggregation_config({{"lease_s", 2}}), root(),
                                        "-first");
    // The answer cannot be written down: the version is in the store, and the transaction that says so hangs.
    auto connection = pg::connect(conninfo_, "aggregation").value();
    auto transaction = pg::Transaction::begin(connection).value();
    ASSERT_TRUE(transaction.query("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").ok());
    const Json karolina = store_update("karolina", {.offset = 1}, 100);
    close_round({karolina, store_update("leonardo", {.offset = 2}, 200)});
    http::Client client(transfer_.store);
    const auto globals = [&] {
        const Json page = client.get_json("/v1/models/demo/versions?limit=1000").value();
        return std::count_if(page["items"].begin(), page["items"].end(),
                             [](const Json& version) { return version["kind"] == "global"; });
    };
    const auto inserts_waiting = [&] {
        return query(
                   "SELECT count(*) AS n FROM pg_locks WHERE NOT granted AND relation = 'outbox'::regclass"
                   " AND mode = 'RowExclusiveLock'")
            .integer(0, "n");
    };
    ASSERT_TRUE(eventually([&] { return globals() == 1 && inserts_waiting() == 1; })) << first->log();
    first->kill();
    ASSERT_TRUE(transaction.commit().ok());
    EXPECT_EQ(query("SELECT state FROM aggregations").text(0, "state"), "publishing");
    const ServiceProcess second("aggregation", aggregation_config({{"lease_s", 2}}), root(), "-second");
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event << second.log();
    expect_average(event["data"]["version"], {"karolina", "leonardo"}, {100, 200});
    EXPECT_EQ(globals(), 1);
    ASSERT_TRUE(eventually([&] { return query("SELECT 1 FROM outbox").size() == 0; }));
    EXPECT_TRUE(consumer_->poll(std::chrono::milliseconds(500)).value().empty()) << "one answer";
}

TEST_F(AggregationProcessTest, TheServerOptimizerKeepsItsMomentumThroughAKill) {
    const auto start = [&](std::optional<ServiceProcess>& service, const std::string& name) {
        service.emplace("aggregation", aggregation_config({{"part_bytes", 8192}}), root(), name);
    };
    const Json strategy = {{"name", "fedavg"}, {"weighting", "uniform"}, {"outer", {{"lr", 0.7}, {"momentum", 0.6}}}};
    std::optional<ServiceProcess> service;
    start(service, "-first");
    const std::string base = store_model("base", {.offset = 1});
    close_round({store_update("karolina", {.offset = 2}, 1), store_update("leonardo", {.offset = 4}, 1)},
                {{"base", base}, {"strategy", strategy}});
    const Json first = result()["data"];
    service->kill();
    start(service, "-second");
    close_round({store_update("karolina2", {.offset = 5}, 1), store_update("leonardo2", {.offset = 3}, 1)},
                {{"base", first["version"]}, {"round", 2}, {"strategy", strategy}});
    Json second;
    do second = result()["data"];  // the first one may come again: the kill was before its delivery was noted
    while (second["round"] == 1);
    ASSERT_EQ(second["round"], 2) << second << service->log();

    // The same two steps here.
    std::map<std::string, aggregate::Input, std::less<>> state;
    fs::path from = root() / "base";
    for (const std::string round : {"", "2"}) {
        std::vector<aggregate::Input> updates;
        for (const std::string facility : {"karolina", "leonardo"})
            updates.push_back(aggregate::open_directory(root() / (facility + round)).value());
        aggregate::RoundBase begin{aggregate::open_directory(from).value(), state};
        const auto step = aggregate::Aggregator::plan(aggregate::parse_strategy(strategy).value(), std::move(updates),
                                                      {1, 1}, {}, std::move(begin))
                              .value();
        from = root() / ("step" + round);
        ASSERT_TRUE(aggregate::write_aggregate(step, root() / "base", from).ok());
        state.insert_or_assign("momentum", aggregate::open_directory(from / "momentum").value());
    }
    const auto weights = [](const fs::path& directory) { return read_file(directory / "model.safetensors").value(); };
    EXPECT_TRUE(weights(download(first["version"], "got1")) == weights(root() / "step"));
    EXPECT_TRUE(weights(download(second["version"], "got2")) == weights(root() / "step2"));
    const auto kept = query("SELECT optimizer_state FROM aggregations ORDER BY round");
    EXPECT_TRUE(weights(download(kept.text(1, "optimizer_state"), "kept") / "momentum") ==
                weights(root() / "step2" / "momentum"));
    http::Client client(transfer_.store);
    EXPECT_EQ(client.get_json("/v1/versions/" + kept.text(0, "optimizer_state")).value()["kind"], "optimizer_state");
}

TEST_F(AggregationProcessTest, AMissingTokenIsWaitedForAndNotTheRoundsFault) {
    const Json karolina = store_update("karolina", {.offset = 1}, 100);
    const Json leonardo = store_update("leonardo", {.offset = 2}, 100);
    Json config = aggregation_config({});
    const auto token_file = root() / "later";
    config["aggregation"]["token_file"] = token_file.string();
    const ServiceProcess service("aggregation", config, root());
    close_round({karolina, leonardo});
    ASSERT_TRUE(eventually([&] { return service.log().find(token_file.string()) != std::string::npos; }));
    ASSERT_TRUE(write_file_atomic(token_file, token_).ok());
    EXPECT_EQ(result()["type"], "atoll.aggregation.completed.v1");
}

}  // namespace
}  // namespace atl
