#include "tests/contract/readable_records.h"

#include "services/dispatch/testing/made_attempt.h"
#include "shared/base/file.h"
#include "shared/model_config/testing/tiny_model.h"
#include "shared/prompt/tokenizer_reader.h"
#include "shared/training_memory/cards.h"

namespace atl::contract {
namespace {

// What would name the window, ring, colour and turn round what a terminal shows: sites and people write such things.
const std::string kSteering =
    "\x1b]0;owned\a\xc2\x9b"
    "31m\xe2\x80\xae";

using http::Method;
using json::Json;

const char* const kDigest = "3f6c0a1100000000000000000000000000000000000000000000000000000000";
// No pause of the services is longer than an hour, and one that is longer than two they take for a clock's mistake.
constexpr const char* kNotNow = "now() + interval '90 minutes'";

// What a task and its newest attempt may stand at.
struct TaskAt {
    const char* state;
    const char* step;  // nullptr: no attempt
};
constexpr TaskAt kTasksAt[] = {{"pending", nullptr},      {"running", "staging"}, {"running", "submitting"},
                               {"running", "queued"},     {"running", "running"}, {"running", "collecting"},
                               {"done", "done"},          {"failed", "failed"},   {"cancelled", "cancelled"},
                               {"pending", "interrupted"}};

constexpr TaskAt kPreparationsAt[] = {
    {"pending", nullptr}, {"running", "queued"}, {"done", "done"}, {"failed", "failed"}, {"cancelled", "cancelled"}};

std::string text_of(const Json& value, const char* key) {
    return value.at(key).get<std::string>();
}

}  // namespace

Result<Json> ReadableRecords::send(Method method, const std::string& service, const std::string& path,
                                   const Json& body) const {
    const auto answer = stack_.call(service, method, path, stack_.token(auth::Role::kAdmin), body.dump());
    if (!answer.ok()) return internal_error(service + path + ": " + answer.body);
    return answer.body.empty() ? Result<Json>(Json()) : answer.json();
}

Status ReadableRecords::sql(const std::string& schema, const std::string& statement,
                            const std::vector<pg::Param>& parameters) const {
    ATOLL_TRY(auto connection, pg::connect(stack_.postgres(), schema));
    const auto done = connection.query(statement, parameters);
    return done.ok() ? Status() : internal_error(statement + ": " + describe(done.error()));
}

Status ReadableRecords::make() {
    ATOLL_RETURN_IF_ERROR(make_models());
    ATOLL_RETURN_IF_ERROR(make_facilities());
    ATOLL_RETURN_IF_ERROR(make_dataset());
    ATOLL_RETURN_IF_ERROR(make_preparations());
    ATOLL_RETURN_IF_ERROR(make_jobs());
    ATOLL_RETURN_IF_ERROR(set_tasks());
    ATOLL_RETURN_IF_ERROR(set_rounds());
    ATOLL_RETURN_IF_ERROR(make_tokens());
    ATOLL_RETURN_IF_ERROR(make_aggregations());
    ATOLL_RETURN_IF_ERROR(make_rare_records());
    return set_facilities();
}

Status ReadableRecords::make_models() {
    const auto version = directory_.path() / "model";
    std::filesystem::create_directories(version);
    models = {"llama", "diaries"};
    const char* const kinds[] = {"base", "update", "optimizer_state", "adapter", "global"};
    for (const char* kind : kinds) {
        model_config::write_tiny_model(version, 320, std::string(4, kind[0]));
        ATOLL_RETURN_IF_ERROR(write_file_atomic(version / "tokenizer.json", model_config::kTinyTokenizer));
        ATOLL_RETURN_IF_ERROR(stack_.run({"model", "push", "llama", version, "--tag", std::string("is-") + kind,
                                          "--description", "tiny" + kSteering}));
        ATOLL_TRY(const Json made,
                  send(Method::kGet, "store", std::string("/v1/models/llama/versions/is-") + kind, nullptr));
        digests.push_back(text_of(made, "digest"));
        blobs.push_back(made.at("manifest").at("files").at(0).at("chunks").at(0).at("sha256"));
        const Json contribution = {{"facility", "here"}, {"version", kDigest}, {"weight", 1.0},
                                   {"samples", 8},       {"tokens", 64},       {"norm", 1.5}};
        ATOLL_RETURN_IF_ERROR(
            sql("store",
                "UPDATE versions SET kind = $2, contributions = $3, metrics = $4,"
                " job = CASE WHEN $2 NOT IN ('base', 'adapter') THEN 'made' END,"
                " round = CASE WHEN $2 NOT IN ('base', 'adapter') THEN 3 END,"
                " adapter_of = CASE WHEN $2 = 'adapter' THEN $5 END WHERE digest = $1",
                {digests.back(), kind, Json::array({contribution}), Json{{"loss", 2.5}}, digests.front()}));
    }
    ATOLL_RETURN_IF_ERROR(
        sql("store",
            "INSERT INTO round_versions SELECT job, round, kind, model, digest, parents, contributions, created_by,"
            " created_at FROM versions WHERE job = 'made'"));
    ATOLL_RETURN_IF_ERROR(send(Method::kPost, "store", "/v1/models", {{"name", "diaries"}}));
    version_names = {"newest", "round3", "is-base", digests.front().substr(0, 8), digests.back()};
    return {};
}

Status ReadableRecords::make_facilities() {
    const auto config = directory_.path() / "ssh_config";
    ATOLL_RETURN_IF_ERROR(write_file_atomic(config, "Host site\n  HostName 127.0.0.1\n  Port 1\n  BatchMode yes\n"));
    const Json local = {{"kind", "local"}};
    const Json ssh = {{"kind", "ssh"}, {"host", "site"}, {"config_file", config}};
    const Json slots = {{"kind", "local"}, {"slots", 2}};
    Json slurm = {{"kind", "slurm"},
                  {"default_queue", "gpu"},
                  {"queues",
                   {{"gpu", {{"partition", "boost"}, {"nodes_max", 4}, {"time_max", "24:00:00"}}},
                    {"cpu", {{"partition", "dcgp"}, {"time_max", "1:00:00"}}}}}};
    for (const auto& card : training_memory::cards())
        slurm["queues"][std::string(card.name)] = {{"card", std::string(card.name)}};
    const auto add = [&](const std::string& name, const Json& transport, const Json& batch,
                         const Json& more) -> Status {
        Json facility = {{"name", name}, {"transport", transport}, {"batch", batch}};
        facility["work_dir"] = (directory_.path() / name).string();
        facility.update(more);
        facilities.push_back(name);
        std::filesystem::create_directories(directory_.path() / name);
        ATOLL_RETURN_IF_ERROR(send(Method::kPost, "dispatch", "/v1/facilities", facility));
        return {};
    };
    const Json image = {{"path", "/images/atoll.sif"}, {"gpu", "nv"}, {"runtime", "apptainer"}};
    ATOLL_RETURN_IF_ERROR(add("here", local, slots, {{"allow", {"*"}}}));
    ATOLL_RETURN_IF_ERROR(add("far", ssh, slots, {{"logs", {{"return", "errors"}}}}));
    Json of_template = slurm;
    of_template["template"] = "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --account=proj\n{{ command }}\n";
    ATOLL_RETURN_IF_ERROR(add("cluster", ssh, of_template, {{"environment", {{"HTTPS_PROXY", "http://proxy:3128"}}}}));
    Json streams = ssh;
    streams["data"] = "ssh";
    ATOLL_RETURN_IF_ERROR(add("boxed", streams, slurm, {{"image", image}, {"logs", {{"return", "none"}}}}));
    Json other_image = image;
    other_image.update({{"gpu", "rocm"}, {"runtime", "singularity"}});
    ATOLL_RETURN_IF_ERROR(add("away", ssh, slurm, {{"image", other_image}}));
    ATOLL_RETURN_IF_ERROR(add("full", local, slots, Json::object()));
    ATOLL_RETURN_IF_ERROR(add("unowned", local, slots, Json::object()));
    return sql("dispatch", std::string("UPDATE facilities SET retry_at = ") + kNotNow);  // nothing is started there
}

Status ReadableRecords::make_dataset() {
    datasets = {"diaries-it", "nothing-yet"};
    for (const std::string& name : datasets)
        ATOLL_RETURN_IF_ERROR(send(Method::kPost, "registry", "/v1/datasets",
                                   {{"name", name},
                                    {"language", "it"},
                                    {"license", "CC0-1.0"},
                                    {"template", "{{text}}"},
                                    {"description", "diari" + kSteering}}));
    const Json counts = {{"documents", 10}, {"rows", 8}, {"tokens", 100}};
    // Of the second version it is known which model's tokenizer made it.
    const Json tokenizer = {{"model", "llama"},
                            {"version", digests.front()},
                            {"vocabulary", {{"tokenizer.json", kDigest}}},
                            {"settings", Json::object()}};
    for (const char* batching : {"packing", "padding"})
        ATOLL_RETURN_IF_ERROR(send(Method::kPost, "registry", "/v1/datasets/diaries-it/versions",
                                   {{"tokenizer_sha256", kDigest},
                                    {"tokenizer_reader", prompt::kTokenizerReader},
                                    {"tokenizer", std::string_view(batching) == "padding" ? tokenizer : Json()},
                                    {"seq_len", 16},
                                    {"batching", batching},
                                    {"train", counts},
                                    {"validation", counts},
                                    {"statistics", {{"without_end", 3}}},
                                    {"fingerprint", std::string(64, batching[3] == 'k' ? 'a' : 'b')}}));
    for (const std::string& facility : facilities)
        ATOLL_RETURN_IF_ERROR(send(Method::kPut, "registry", "/v1/datasets/diaries-it/versions/1/copies/" + facility,
                                   {{"path", "datasets/diaries-it/1"}}));
    return sql("registry",
               "INSERT INTO copies (dataset, version, facility, path, updated_by)"
               " SELECT dataset, version, 'removed-site', path, updated_by FROM copies"
               " WHERE dataset = 'diaries-it' LIMIT 1");
}

Status ReadableRecords::make_preparations() {
    for (int i = 0; i < 5; ++i) {
        ATOLL_TRY(const Json made, send(Method::kPost, "dispatch", "/v1/preparations",
                                        {{"facility", facilities[static_cast<std::size_t>(i)]},
                                         {"dataset", "diaries-it"},
                                         {"tokenizer", {{"model", "llama"}, {"version", "is-base"}}},
                                         {"input", "texts.jsonl"},
                                         {"input_format", i == 0 ? "lines" : "auto"},
                                         {"batching", i == 0 ? "padding" : "packing"},
                                         {"seq_len", 16}}));
        preparations.push_back(text_of(made, "id"));
    }
    return {};
}

Status ReadableRecords::make_jobs() {
    Json participants = Json::array();
    for (const std::string& facility : facilities)
        participants.push_back({{"facility", facility}, {"dataset", "diaries-it"}, {"dataset_version", 1}});
    const Json records = {{"far", {{"refusals", 2}, {"reason", "it holds NaN"}}},
                          {"boxed", {{"refusals", 0}, {"reason", ""}, {"left_out", true}}}};
    for (const char* state : {"running", "paused", "completed", "failed", "cancelled"}) {
        ATOLL_TRY(const Json made, send(Method::kPost, "dispatch", "/v1/jobs",
                                        {{"name", state},
                                         {"model", {{"name", "llama"}, {"version", "is-base"}}},
                                         {"rounds", 3},
                                         {"participants", participants},
                                         {"training", {{"steps", 4}, {"batch_size", 4}}}}));
        const std::string id = text_of(made, "id");
        jobs[state] = id;
        const bool has_ended = std::string_view(state) != "running" && std::string_view(state) != "paused";
        ATOLL_RETURN_IF_ERROR(sql("dispatch",
                                  "UPDATE jobs SET state = $2, error = CASE WHEN $2 = 'failed' THEN 'here: train of"
                                  " round 1 failed: exit code 137' || $5 ELSE '' END, records = $3,"
                                  " paused_at = CASE WHEN $2 = 'paused' THEN now() END,"
                                  " finished_at = CASE WHEN $4 = 'true' THEN now() END WHERE id = $1",
                                  {id, state, records, has_ended ? "true" : "false", kSteering}));
        if (!has_ended) continue;
        ATOLL_RETURN_IF_ERROR(
            sql("dispatch",
                "WITH one AS (UPDATE jobs SET event_count = event_count + 1 WHERE id = $1 RETURNING event_count, name)"
                " INSERT INTO job_events (job_id, number, type, data) SELECT $1, event_count, $2, $3 FROM one",
                {id, std::string("atoll.job.") + state + ".v1",
                 Json{{"job", id}, {"name", state}, {"round", 1}, {"error", "as it ended" + kSteering}}}));
    }
    return {};
}

// Parks all tasks, also those that a worker has in hand, whose result counts no more under the next fence; then gives
// each its state in turn, so that each kind of task has each of them. What workers made of the jobs until now is
// undone.
Status ReadableRecords::set_tasks() {
    ATOLL_RETURN_IF_ERROR(sql("dispatch", std::string("UPDATE tasks SET fence = fence + 1, lease_until = '-infinity',"
                                                      " next_step_at = ") +
                                              kNotNow));
    ATOLL_RETURN_IF_ERROR(
        sql("dispatch",
            "UPDATE jobs SET state = name, error = '', finished_at = CASE WHEN name = 'completed' THEN finished_at END"
            " WHERE name = ANY ('{running,paused,completed}')"));
    ATOLL_TRY(auto connection, pg::connect(stack_.postgres(), "dispatch"));
    ATOLL_TRY(const auto rows, connection.query("SELECT id, coalesce(job_id, '') AS job, kind, facility FROM tasks"
                                                " WHERE kind <> 'clean' ORDER BY kind, id"));
    std::map<std::string, std::size_t> next;  // by kind
    for (int row = 0; row < rows.size(); ++row) {
        const std::string id = rows.text(row, "id");
        const std::string kind = rows.text(row, "kind");
        if (const std::string job = rows.text(row, "job"); !job.empty()) tasks[job].push_back(id);
        const std::size_t turn = next[kind]++;
        const TaskAt& at = kind == "prepare" ? kPreparationsAt[turn % std::size(kPreparationsAt)]
                                             : kTasksAt[turn % std::size(kTasksAt)];
        Json result;
        if (kind == "train")
            result = {{"version", digests.at(1)}, {"samples", 8}, {"tokens", 64}, {"metrics", {{"loss", 2.5}}}};
        else if (kind == "evaluate")
            result = {{"dataset", "diaries-it"},
                      {"evaluations",
                       {{{"which", "global"}, {"model", digests.front()}, {"perplexity", 13.56}, {"tokens", 64}}}}};
        else
            result = {{"dataset_version", 1}};
        ATOLL_RETURN_IF_ERROR(sql("dispatch",
                                  "UPDATE tasks SET state = $2, error = CASE WHEN $2 = 'failed' THEN 'exit code 137:"
                                  " out of memory' || $4 ELSE '' END, result = CASE WHEN $2 = 'done' THEN $3::jsonb END"
                                  " WHERE id = $1",
                                  {id, at.state, result, kSteering}));
        if (at.step == nullptr) continue;
        ATOLL_RETURN_IF_ERROR(sql(
            "dispatch",
            "INSERT INTO attempts (task_id, number, batch_job_name, step, batch_id, error, progress)"
            " VALUES ($1, 1, $2, $3, '4711', CASE WHEN $3 IN ('failed', 'interrupted') THEN"
            " 'TIMEOUT: TimeLimit' ELSE '' END, $4) ON CONFLICT (task_id, number) DO UPDATE SET step = EXCLUDED.step,"
            " batch_id = EXCLUDED.batch_id, error = EXCLUDED.error, progress = EXCLUDED.progress",
            {id, "atoll-" + id + "-1", at.step, dispatch::progress_at(at.step)}));
        for (const char* file : {"stdout.jsonl", "stderr.log", "batch.log"})
            ATOLL_RETURN_IF_ERROR(sql("dispatch",
                                      "INSERT INTO attempt_logs VALUES ($1, 1, $2, $3) ON CONFLICT DO NOTHING",
                                      {id, file, "what " + rows.text(row, "facility") + " wrote" + kSteering + "\n"}));
    }
    return {};
}

Status ReadableRecords::set_rounds() {
    const std::map<std::string, std::string> rounds = {{"running", "training"},
                                                       {"paused", "aggregating"},
                                                       {"completed", "closed"},
                                                       {"failed", "failed"},
                                                       {"cancelled", "cancelled"}};
    for (const auto& [job, state] : rounds)
        ATOLL_RETURN_IF_ERROR(
            sql("dispatch",
                "INSERT INTO rounds (job_id, number, state, base_digest, version_digest, evaluated, deadline_at)"
                " VALUES ($1, 1, $2, $3, CASE WHEN $2 = 'closed' THEN $4 ELSE '' END, $2 = 'closed',"
                " now() + interval '5 days') ON CONFLICT (job_id, number) DO UPDATE SET state = excluded.state,"
                " version_digest = excluded.version_digest, evaluated = excluded.evaluated",
                {jobs.at(job), state, digests.front(), digests.back()}));
    ATOLL_RETURN_IF_ERROR(sql("dispatch", std::string("UPDATE rounds SET waiting_since = now() - interval '1 minute',"
                                                      " waiting_reason = 'Kafka does not take the events of this job',"
                                                      " next_try_at = ") +
                                              kNotNow + ", ask_again_at = " + kNotNow +
                                              " WHERE state = 'aggregating'"));
    ATOLL_RETURN_IF_ERROR(sql("dispatch", "UPDATE jobs SET current_round = 1"));
    return set_closed_round();
}

// What each update was in the model of the round that is closed; each training took two attempts. All evaluations of
// the base model failed.
Status ReadableRecords::set_closed_round() {
    const std::string trainings =
        "SELECT id FROM tasks WHERE kind = 'train' AND job_id = '" + jobs.at("completed") + "'";
    ATOLL_RETURN_IF_ERROR(
        sql("dispatch",
            "UPDATE rounds SET contributions = (SELECT jsonb_agg(jsonb_build_object('task', id, 'share', 0.125,"
            " 'norm', 3.25, 'cosine', -0.75, 'counted', 1, 'control_variate_norm', 5.75, 'control_variate_counted',"
            " 0.375)) FROM (" +
                trainings + ") AS one) WHERE job_id = $1",
            {jobs.at("completed")}));
    ATOLL_RETURN_IF_ERROR(sql("dispatch",
                              "INSERT INTO attempts (task_id, number, batch_job_name, step, batch_id, error, progress)"
                              " SELECT task_id, 2, batch_job_name || '-2', step, '4712', error, progress FROM attempts"
                              " WHERE task_id IN (" +
                                  trainings + ")"));
    ATOLL_RETURN_IF_ERROR(sql("dispatch",
                              "UPDATE tasks SET state = 'failed', result = NULL, error = 'no tokenizer' || $2"
                              " WHERE kind = 'evaluate' AND round = 0 AND job_id = $1",
                              {jobs.at("completed"), kSteering}));
    ATOLL_RETURN_IF_ERROR(
        sql("dispatch", "UPDATE rounds SET evaluated = true WHERE number = 0 AND job_id = $1", {jobs.at("completed")}));
    return sql("dispatch",
               "UPDATE attempts SET step = 'interrupted', error = 'its node failed (NODE_FAIL)'"
               " WHERE number = 1 AND task_id IN (" +
                   trainings + ")");
}

Status ReadableRecords::make_tokens() {
    for (const char* role : {"admin", "operator", "viewer", "viewer", "metrics"}) {
        ATOLL_TRY(const Json made, send(Method::kPost, "dispatch", "/v1/tokens",
                                        {{"subject", std::string("ada-") + role}, {"role", role}, {"days", 1}}));
        token_ids.push_back(text_of(made, "id"));
    }
    ATOLL_RETURN_IF_ERROR(send(Method::kDelete, "dispatch", "/v1/tokens/" + token_ids.front(), nullptr));
    ATOLL_RETURN_IF_ERROR(sql("dispatch", "UPDATE tokens SET expires_at = now() WHERE id = $1", {token_ids.at(1)}));
    return sql("dispatch", "UPDATE tokens SET signed_by = 'a key of before' WHERE id = $1", {token_ids.at(2)});
}

Status ReadableRecords::make_aggregations() {
    Json refused = Json::array();
    for (const char* fault : {"site", "store"})
        refused.push_back({{"facility", "far"},
                           {"task", "t1"},
                           {"version", digests.at(1)},
                           {"reason", "it holds NaN"},
                           {"fault", fault}});
    int round = 0;
    for (const char* state : {"planning", "measuring", "averaging", "publishing", "completed", "failed"}) {
        aggregations.emplace_back("made", std::to_string(++round));
        const char* const optimizer = round == 1 ? "nesterov" : round == 4 ? "momentum" : "adam";
        const Json fedavg = {{"name", "fedavg"},
                             {"weighting", round == 1 ? "uniform" : "tokens"},
                             {"clip", 1.4},
                             {"drop", 3},
                             {"row_weights", round == 1 ? "mean" : "tokens"},
                             {"control_variate", 0.7},
                             {"absent", round == 1 ? "left_out" : "no_change"},
                             {"outer", {{"optimizer", optimizer}, {"lr", 0.7}, {"momentum", 0.9}}}};
        ATOLL_RETURN_IF_ERROR(
            sql("aggregation",
                std::string(
                    "INSERT INTO aggregations (job, round, model, base, strategy, updates, refused, state,"
                    " parts_total, parts_left, error, lease_until, lease_holder) VALUES ('made', $1::integer,"
                    " 'diaries', $2, $3, '[]', $5, $4, 4, 2, CASE WHEN $4 = 'failed' THEN 'no update is left' END, ") +
                    kNotNow + ", 'a test')",
                {std::to_string(round), digests.front(),
                 round == 3   ? Json{{"name", "product"}, {"weighting", "uniform"}, {"clip", 1.4}, {"drop", 3}}
                 : round == 6 ? Json{{"name", "median"}, {"clip", 1.4}, {"drop", 3}}
                 : round == 2 ? Json{{"name", "trimmed_mean"}, {"clip", nullptr}, {"drop", nullptr}, {"trim", 0.1}}
                              : fedavg,
                 state, refused}));
    }
    return {};
}

// Dead letters, a damaged blob, an upload.
Status ReadableRecords::make_rare_records() {
    for (const char* service : {"dispatch", "aggregation"}) {
        dead_letters.push_back(std::string("letter-of-") + service);
        ATOLL_RETURN_IF_ERROR(sql(service,
                                  "INSERT INTO dead_letters (consumer, event_id, topic, key, value, error) VALUES"
                                  " ($1, $2, 'atoll.rounds', 'made', '{}', 'data.round: is required')",
                                  {service, dead_letters.back()}));
    }
    ATOLL_RETURN_IF_ERROR(sql("store", "INSERT INTO damaged_blobs (blob) VALUES ($1)", {blobs.front()}));
    return sql("store", "INSERT INTO uploads (task, attempt, bytes, version) VALUES ($1, '1', 4096, $2)",
               {upload_task, digests.at(1)});
}

// What dispatch has found out of sites.
Status ReadableRecords::set_facilities() {
    const auto wait = [&](const char* name, const std::string& reason) {
        return sql("dispatch",
                   std::string("UPDATE facilities SET unknown_answers = 3, waiting_since = now() - interval '1 hour',"
                               " waiting_reason = $2, retry_at = ") +
                       kNotNow + " WHERE name = $1",
                   {name, reason});
    };
    // Never looked at in between: what dispatch found would stand in place of this.
    ATOLL_RETURN_IF_ERROR(wait("away", "ssh: connect to host 127.0.0.1 port 1: Connection refused" + kSteering));
    ATOLL_RETURN_IF_ERROR(wait("full", "nothing can be written in its work directory: No space left on device"));
    ATOLL_RETURN_IF_ERROR(sql("dispatch", "UPDATE facilities SET retry_at = NULL WHERE waiting_since IS NULL"));
    ATOLL_RETURN_IF_ERROR(sql("dispatch", "UPDATE facilities SET spec = spec - 'owner' WHERE name = 'unowned'"));
    const Json limits = {
        {"nodes_max", 4}, {"time_max_s", 86400}, {"time_default_s", 0}, {"cores_max", 32}, {"memory_mib_max", 480000}};
    return sql("dispatch", "UPDATE facilities SET devices = $1, limits = $2 WHERE name IN ('cluster', 'boxed')",
               {Json{"cuda", "cpu"}, Json{{"gpu", limits}}});
}

}  // namespace atl::contract
