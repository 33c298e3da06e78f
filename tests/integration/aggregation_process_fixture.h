#pragma once

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
#include "tests/integration/service_process.h"
#include "tests/integration/test_model.h"
#include "tests/integration/test_stack.h"

// The aggregation service as processes, with a real store, Postgres and Kafka.
namespace atl {

namespace fs = std::filesystem;
using json::Json;

inline const Json kPlainMean = {{"name", "fedavg"}, {"weighting", "tokens"}, {"clip", nullptr}, {"drop", nullptr}};
inline const Json kDefault = {{"name", "fedavg"}};

class AggregationProcessTest : public StackTest {
  protected:
    void SetUp() override {
        StackTest::SetUp();
        if (IsSkipped()) return;
        conninfo_ = stack().create_database();
        prefix_ = stack().unique("t") + ".";
        const auto keys = auth::generate_keys().value();
        ASSERT_TRUE(write_file_atomic(root() / "public.pem", keys.public_pem).ok());
        auth::Principal principal;
        principal.subject = "aggregation";
        principal.role = auth::Role::kOperator;
        const auto issuer = auth::Issuer::from_pem(keys.private_pem).value();
        token_ = issuer.issue(principal, std::chrono::hours(1)).value();
        ASSERT_TRUE(write_file_atomic(root() / "token", token_ + "\n").ok());
        Json config = common_config();
        config["store"] = {{"root", (root() / "blobs").string()}, {"topic_prefix", prefix_}};
        store_.emplace("store", config, root());
        transfer_.store.base_url = store_->url();
        transfer_.store.token = token_;
        http::Client client(transfer_.store);
        ASSERT_TRUE(client.post_json("/v1/models", {{"name", "demo"}}, "model").ok());
        consumer_.emplace(make_consumer());
        dispatch_.emplace();
    }

    fs::path root() const { return directory_.path(); }
    Json common_config() const {
        return {{"postgres", conninfo_},
                {"kafka_brokers", stack_kafka()},
                {"public_key_file", (root() / "public.pem").string()},
                {"request_bytes_max", 17 << 20}};
    }
    std::string stack_kafka() const { return const_cast<AggregationProcessTest*>(this)->stack().kafka(); }
    Json aggregation_config(Json own) const {
        own.update({{"store_url", store_->url()},
                    {"dispatch_url", dispatch_->url()},
                    {"token_file", (root() / "token").string()},
                    {"topic_prefix", prefix_}});
        Json config = common_config();
        config["aggregation"] = std::move(own);
        return config;
    }
    kafka::Consumer make_consumer() {
        const std::string topic = prefix_ + "atoll.aggregations";
        EXPECT_TRUE(kafka::ensure_topics(stack().kafka(), {topic}, 1).ok());
        return kafka::Consumer::create(stack().kafka(), stack().unique("reader"), {topic}).value();
    }

    // Makes a model of the options and stores it; its digest.
    std::string store_model(const std::string& name, const ModelOptions& options) {
        write_model(root() / name, options);
        return store_directory(name);
    }
    // An adapter of one matrix that no other offset gives.
    std::string store_adapter(const std::string& name, float offset) {
        fs::create_directories(root() / name);
        const Json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"offset", offset}};
        EXPECT_TRUE(write_file_atomic(root() / name / "adapter_config.json", config.dump()).ok());
        const std::vector<safetensors::TensorInfo> tensors{
            {"m.q_proj.lora_A.weight", safetensors::DType::kF32, {2, 4}, 0, 0},
            {"m.q_proj.lora_B.weight", safetensors::DType::kF32, {3, 2}, 0, 0}};
        auto writer = safetensors::Writer::create(root() / name / "adapter_model.safetensors", tensors).value();
        std::vector<float> values;
        for (int i = 0; i < 14; ++i) values.push_back(0.1F * static_cast<float>(i) + offset);
        EXPECT_TRUE(writer.append(std::as_bytes(std::span(values))).ok());
        EXPECT_TRUE(writer.finish().ok());
        return store_directory(name);
    }
    std::string store_directory(const std::string& name) {
        const auto uploaded = store_client::upload_directory(root() / name, transfer_).value();
        store_client::VersionDetails details;
        details.kind = "update";
        http::Client client(transfer_.store);
        const auto version = store_client::create_version(client, "demo", uploaded.manifest, details);
        EXPECT_TRUE(version.ok()) << (version.ok() ? "" : version.error().message);
        return store_client::manifest_digest(uploaded.manifest);
    }
    // Flips a bit of that byte of the first chunk of a stored model's file, where the store has it; the chunk's digest.
    std::string rot(const std::string& name, const std::string& file, std::size_t at) {
        const std::string chunk = store_client::scan_directory(root() / name, 1)->find(file)->chunks[0].sha256;
        const fs::path blob = root() / "blobs" / chunk.substr(0, 2) / chunk.substr(2, 2) / chunk;
        std::string bytes = read_file(blob).value();
        bytes.at(at) ^= 1;
        fs::permissions(blob, fs::perms::owner_all);
        EXPECT_TRUE(write_file_atomic(blob, bytes).ok());
        return chunk;
    }
    // The entry in the event of an update made of the options.
    Json store_update(const std::string& facility, const ModelOptions& options, std::int64_t tokens) {
        return {{"facility", facility},
                {"task", "task-" + facility},
                {"version", store_model(facility, options)},
                {"samples", 1},
                {"tokens", tokens}};
    }
    void close_round(const Json& updates) { close_round(updates, {{"base", updates[0]["version"]}}); }
    // `changes`: of the event's data.
    void close_round(const Json& updates, const Json& changes) {
        Json data = {{"job", "j1"}, {"round", 1}, {"model", "demo"}, {"strategy", kPlainMean}, {"updates", updates}};
        data.update(changes);
        dispatch_->add(data);
        tell_closed(data, "closed-" + data["job"].get<std::string>() + "-" + data["round"].dump());
    }
    // On Kafka alone, whatever dispatch knows.
    void tell_closed(const Json& data, const std::string& id) {
        const Json event = {{"specversion", "1.0"}, {"id", id},
                            {"source", "/test"},    {"type", "atoll.round.closed.v1"},
                            {"data", data},         {"subject", "jobs/j1"}};
        auto producer = kafka::Producer::create(stack().kafka(), "test").value();
        const std::string topic = prefix_ + "atoll.rounds";
        ASSERT_TRUE(kafka::ensure_topics(stack().kafka(), {topic}, 2).ok());
        ASSERT_TRUE(producer.send({{.topic = topic, .key = "j1", .value = event.dump()}}).ok());
    }
    // The first event that the service sends.
    Json result() {
        Json event;
        EXPECT_TRUE(eventually([&] {
            const auto messages = consumer_->poll(std::chrono::milliseconds(200)).value();
            if (!messages.empty()) event = Json::parse(messages[0].value);
            return !messages.empty();
        }));
        return event;
    }
    // The version must be, byte for byte, what averaging the directories here gives.
    void expect_average(const std::string& version, const std::vector<std::string>& facilities,
                        const std::vector<double>& weights) {
        std::vector<aggregate::Input> inputs;
        for (const auto& facility : facilities) inputs.push_back(aggregate::open_directory(root() / facility).value());
        const auto aggregator = aggregate::Aggregator::plan({}, std::move(inputs), weights).value();
        ASSERT_TRUE(aggregate::write_aggregate(aggregator, root() / facilities[0], root() / "expected").ok());
        const auto status = store_client::download_version(version, root() / "got", transfer_);
        ASSERT_TRUE(status.ok()) << status.error().message;
        for (const char* file : {"model.safetensors", "config.json"})
            EXPECT_TRUE(read_file(root() / "got" / file).value() == read_file(root() / "expected" / file).value())
                << file;
    }
    // The same of updates that are measured against their base, by the strategy.
    void expect_measured(const std::string& version, const std::vector<std::string>& facilities,
                         const std::vector<double>& weights, const std::string& base, const Json& strategy) {
        std::vector<aggregate::Input> inputs;
        for (const auto& facility : facilities) inputs.push_back(aggregate::open_directory(root() / facility).value());
        auto aggregator = aggregate::Aggregator::plan(aggregate::parse_strategy(strategy).value(), std::move(inputs),
                                                      weights, {}, {{aggregate::open_directory(root() / base).value()}})
                              .value();
        ASSERT_TRUE(aggregate::measure_inputs(aggregator).ok());
        const fs::path expected = root() / ("expected-" + version);
        ASSERT_TRUE(aggregate::write_aggregate(aggregator, root() / base, expected).ok());
        EXPECT_TRUE(read_file(download(version, "got-" + version) / "model.safetensors").value() ==
                    read_file(expected / "model.safetensors").value());
    }
    fs::path download(const std::string& version, const std::string& name) {
        const auto status = store_client::download_version(version, root() / name, transfer_);
        EXPECT_TRUE(status.ok()) << status.error().message;
        return root() / name;
    }
    pg::Rows query(const std::string& sql) { return pg::connect(conninfo_, "aggregation").value().query(sql).value(); }

    // Lets the aggregation finish so many parts of a plan (`column`: or measure them) and then wait in the database,
    // with parts in its workers' hands, while the connection lives: a small one is done before a test has looked.
    pg::Connection hold_after(int parts, int plan = 0, const std::string& column = "sha256") {
        auto holder = pg::connect(conninfo_, "aggregation").value();
        const auto held = holder.script(
            "SELECT pg_advisory_lock(1);"
            "CREATE FUNCTION hold_part() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            "  IF (SELECT count(*) FROM aggregation.parts WHERE " +
            column + " IS NOT NULL AND plan = " + std::to_string(plan) + ") >= " + std::to_string(parts) +
            "  THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER hold_part BEFORE UPDATE OF " +
            column +
            " ON parts"
            " FOR EACH ROW EXECUTE FUNCTION hold_part()");
        EXPECT_TRUE(held.ok()) << held.error().message;
        return holder;
    }
    // Kills the service that waits, whose transactions are rolled back, and holds the next one no more. An update that
    // reached the database just before the kill begins to wait after a first look, and keeps the trigger: look again.
    void kill_held(std::optional<ServiceProcess>& service, pg::Connection& holder) {
        service->kill();
        ASSERT_TRUE(eventually([&] {
            const auto ended = holder.query(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
                " WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted");
            return ended.ok() && holder.script("SET lock_timeout = 200; DROP TRIGGER hold_part ON parts").ok();
        }));
        ASSERT_TRUE(holder.script("SELECT pg_advisory_unlock(1)").ok());
    }

    TemporaryDirectory directory_;
    std::string conninfo_;
    std::string prefix_;
    std::string token_;
    store_client::TransferOptions transfer_;
    std::optional<ServiceProcess> store_;
    std::optional<kafka::Consumer> consumer_;
    std::optional<aggregation::FakeDispatch> dispatch_;
};

}  // namespace atl
