#include "tests/fault/evidence.h"

#include <chrono>
#include <fstream>
#include <set>

#include "shared/base/file.h"
#include "shared/base/id.h"
#include "shared/digest/digest.h"
#include "shared/http/client/client.h"
#include "shared/kafka/kafka.h"
#include "shared/pg/pg.h"
#include "tests/e2e/demo/federation.h"

namespace atl::fault {
namespace {

namespace fs = std::filesystem;
using json::Json;
using Clock = std::chrono::steady_clock;

Result<Json> read_rows(pg::Connection& connection, const std::string& select) {
    ATOLL_TRY(const auto rows, connection.query("SELECT coalesce(json_agg(r), '[]') AS rows FROM (" + select + ") r"));
    return rows.json(0, "rows");
}

Result<Json> read_schema(const std::string& conninfo, const std::string& schema,
                         const std::map<std::string, std::string>& selects) {
    ATOLL_TRY(auto connection, pg::connect(conninfo, schema));
    ATOLL_RETURN_IF_ERROR(connection.query("SET default_transaction_read_only = on"));
    Json read = Json::object();
    for (const auto& [name, select] : selects) {
        ATOLL_TRY(read[name], read_rows(connection, select));
    }
    return read;
}

const std::string kOutbox = "SELECT topic, key, event->>'id' AS id FROM outbox ORDER BY outbox.id";
const std::string kDeadLetters = "SELECT consumer, event_id, error FROM dead_letters ORDER BY event_id";

Result<Json> read_dispatch(const std::string& conninfo) {
    return read_schema(
        conninfo, "dispatch",
        {{"jobs", "SELECT id, name, spec, base_digest, state, current_round, error, event_count FROM jobs ORDER BY id"},
         {"rounds",
          "SELECT job_id, number, state, base_digest, version_digest, error, accepted, refused FROM rounds "
          "ORDER BY job_id, number"},
         {"tasks", "SELECT id, job_id, round, kind, facility, state, error, result FROM tasks ORDER BY id"},
         {"attempts",
          "SELECT task_id, number, batch_job_name, step, exit_code, error FROM attempts ORDER BY task_id, number"},
         {"events", "SELECT job_id, number, type, data FROM job_events ORDER BY job_id, number"},
         {"outbox", kOutbox},
         {"dead_letters", kDeadLetters}});
}

Result<Json> read_aggregation(const std::string& conninfo) {
    return read_schema(conninfo, "aggregation",
                       {{"aggregations",
                         "SELECT job, round, model, base, updates, refused, contributions, state, version, error "
                         "FROM aggregations ORDER BY job, round"},
                        {"outbox", kOutbox},
                        {"dead_letters", kDeadLetters}});
}

Result<Json> list_all(http::Client& client, const std::string& path) {
    Json items = Json::array();
    for (std::string after;;) {
        ATOLL_TRY(const Json page, client.get_json(path + "?limit=100&after=" + after));
        for (const Json& item : page.at("items")) items.push_back(item);
        if (page.at("next").is_null()) return items;
        after = page.at("next").get<std::string>();
    }
}

Result<Json> read_versions(http::Client& client) {
    ATOLL_TRY(const Json models, list_all(client, "/store/v1/models"));
    Json versions = Json::array();
    for (const Json& model : models) {
        const std::string name = model.at("name");
        ATOLL_TRY(const Json listed, list_all(client, "/store/v1/models/" + name + "/versions"));
        for (Json version : listed) {
            ATOLL_TRY(const Json whole,
                      client.get_json("/store/v1/versions/" + version.at("digest").get<std::string>()));
            version["model"] = name;
            version["manifest"] = whole.at("manifest");
            versions.push_back(std::move(version));
        }
    }
    return versions;
}

Json named_blobs(const Json& versions) {
    std::set<std::string> names;
    for (const Json& version : versions)
        for (const Json& file : version.at("manifest").at("files"))
            for (const Json& chunk : file.at("chunks")) names.insert(chunk.at("sha256"));
    return names;
}

// From the first message on, until every event of `expected` has come and no more do, or none has for a while.
Result<Json> read_topics(const std::string& brokers, std::size_t expected) {
    constexpr std::chrono::seconds kQuiet{3};
    constexpr std::chrono::seconds kPatience{30};
    const std::vector<std::string> topics = {"atoll.jobs", "atoll.rounds", "atoll.aggregations", "atoll.models"};
    ATOLL_RETURN_IF_ERROR(kafka::ensure_topics(brokers, topics, -1, -1));
    ATOLL_TRY(auto consumer, kafka::Consumer::create(brokers, "fault-evidence-" + new_id(), topics));
    Json read = Json::array();
    std::set<std::string> ids;
    for (auto last = Clock::now(); Clock::now() - last < (ids.size() >= expected ? kQuiet : kPatience);) {
        ATOLL_TRY(const auto messages, consumer.poll(std::chrono::milliseconds(500), 1000));
        for (const kafka::Message& message : messages) {
            last = Clock::now();
            const auto event = json::parse(message.value);
            if (!event.ok() || !event->is_object()) continue;
            ids.insert(event->value("id", ""));
            read.push_back({{"topic", message.topic},
                            {"key", message.key},
                            {"id", event->value("id", "")},
                            {"type", event->value("type", "")},
                            {"data", event->value("data", Json())}});
        }
    }
    return read;
}

Json read_site(const fs::path& work) {
    Json site = {{"starts", Json::array()}, {"trained", Json::array()}, {"left", Json::array()}};
    std::ifstream runs(work / "runs");
    for (std::string line; std::getline(runs, line);)
        if (line.starts_with("start ")) site["starts"].push_back(line.substr(6));
    std::error_code ignored;
    for (const auto& model : fs::directory_iterator(work / "models", ignored))
        site["left"].push_back("models/" + model.path().filename().string());
    for (const auto& task : fs::directory_iterator(work / "tasks", ignored))
        for (const auto& attempt : fs::directory_iterator(task.path(), ignored)) {
            for (const std::string what : {"out", "out.state"})
                if (fs::exists(attempt.path() / what))
                    site["left"].push_back(fs::relative(attempt.path() / what, work).string());
            const auto end = read_file(attempt.path() / "end.json");
            const auto code = end.ok() ? json::parse(*end) : Result<Json>(end.error());
            if (!code.ok() || code->value("exit_code", -1) != 0 || !fs::exists(attempt.path() / "run.json")) continue;
            site["trained"].push_back(
                {{"task", task.path().filename()}, {"attempt", std::stoi(attempt.path().filename())}});
        }
    return site;
}

}  // namespace

Json examine_blobs(const fs::path& root, const Json& names) {
    Json found = Json::object();
    for (const std::string name : names) {
        const auto actual = digest::sha256_file(root / name.substr(0, 2) / name.substr(2, 2) / name);
        if (actual.ok()) found[name] = *actual == name ? "whole" : "damaged";
    }
    return found;
}

Result<Json> read_evidence(const fs::path& directory) {
    const fs::path state = directory / "stack";
    ATOLL_TRY(const std::string text, read_file(state / "stack.json"));
    ATOLL_TRY(const Json stack, json::parse(text));
    const std::string conninfo = stack.at("postgres");
    Json evidence = Json::object();
    ATOLL_TRY(const std::string submitted, read_file(directory / "jobs.json"));
    ATOLL_TRY(evidence["submitted"], json::parse(submitted));
    ATOLL_TRY(evidence["dispatch"], read_dispatch(conninfo));
    ATOLL_TRY(evidence["aggregation"], read_aggregation(conninfo));
    ATOLL_TRY(evidence["store"], read_schema(conninfo, "store", {{"outbox", kOutbox}}));
    ATOLL_TRY(const auto address, demo::read_stack(state));
    http::ClientOptions options;
    options.base_url = address.gateway;
    options.token = address.token;
    http::Client client(options);
    ATOLL_TRY(evidence["store"]["versions"], read_versions(client));
    evidence["blobs"] = examine_blobs(state / "store/blobs", named_blobs(evidence["store"]["versions"]));
    const std::string brokers =
        kafka::with_credentials(stack.at("kafka").get<std::string>(), stack.at("kafka_credentials").get<std::string>());
    ATOLL_TRY(evidence["kafka"], read_topics(brokers, evidence["dispatch"]["events"].size()));
    evidence["sites"] = Json::object();
    for (const auto& entry : fs::directory_iterator(directory))
        if (const std::string name = entry.path().filename(); name.starts_with("site-"))
            evidence["sites"][name.substr(5)] = read_site(entry.path() / "work");
    return evidence;
}

}  // namespace atl::fault
