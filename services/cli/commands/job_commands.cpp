#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/job_check.h"
#include "services/cli/commands/job_verb.h"
#include "services/cli/job_names.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/terminal.h"
#include "services/cli/usage.h"
#include "services/cli/watch/job_watch.h"
#include "shared/base/file.h"
#include "shared/base/id.h"
#include "shared/base/text.h"
#include "shared/config/config.h"
#include "shared/run_settings/other_config.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kTemplate =
    R"(# A job of Atoll. `atoll job submit job.yaml` sends it, `atoll job watch newest` follows it.
name: italian-czech
model: {name: llama, version: v1}     # a tag, a digest or 8 characters of it, newest, round3
output_model: italian-czech           # a model of its own: an update a facility and a global model each round
rounds: 12
participants:                         # each trains on its own data, which never leaves it
  - facility: leonardo                # `atoll facility list`
    dataset: diaries-it               # `atoll dataset list`
    # dataset_version: 1              # default: the newest there; `atoll dataset show diaries-it`
    # Where there is Slurm; `ranks` alone is for one node:
    # resources: {queue: gpu, nodes: 2, tasks_per_node: 4, gpus_per_node: 4, cores_per_task: 8, memory: 480GiB, time: "2:00:00"}
  - {facility: karolina, dataset: letters-cs, ranks: 2}
strategy:                             # `atoll strategy list` describes each and its settings
  name: fedavg                        # or trimmed_mean: {name: trimmed_mean, trim: 0.1} leaves out the extremes, median all
                                      # but the middle; or, with lora_rank, product: the mean of what adapters add,
                                      # brought back to their rank
  weighting: uniform                  # or tokens
  # max_share: 0.5                    # believe what sites say they saw, up to this share; default: as far as assigned
  # clip: 1.4                         # the default: a change longer than 1.4 times the usual is shortened; null: none is
  # drop: 3                           # the default: one longer than 3 times the usual counts as none; null: all count
  # absent: no_change                 # who has no update keeps its part at the base, for two rounds; default: left_out
  # Without lora_rank, fedavg also takes row_weights: tokens, which weighs the rows of embedding and head by how often each
  # site saw their tokens; each update then says how often it saw each token. And control_variate: 0.7, which has each site
  # step towards what all learn: a mean gradient comes with each update, and the mean of all goes out with each model. It
  # gains little where sites miss rounds.
  # outer: {optimizer: nesterov, lr: 0.7, momentum: 0.9}   # or momentum, adam: steps along what a round changed
training:                             # of a round: flags of `atoll-trainer train` with _ for -
  steps: 20                           # or epochs
  batch_size: 16                      # rows a rank and step
  lr: 0.001
  # proximal_mu: 0.01                 # FedProx: holds each facility near the model that its round began with
  # lora_rank: 16                     # train adapters: the model travels once, then adapters alone; lora_targets, quantize
  # update_format: int4               # updates are changes in blocks of 128 int4 or int8, an eighth or a quarter of fp32; each
                                      # site keeps what rounding lost and adds it to its next one. Default: model
  # keep_optimizer: true              # each site keeps its optimizer's moments for the next round; suits by_step below
  # eval_every: 10                    # each training validates every 10 steps (or: epoch; 0: at its end alone) on the validation
                                      # rows of its dataset, which each participant's must have; val_samples as below
  # save_interval: 600                # the default: a state every ten minutes, from which a later attempt goes on;
                                      # or save_every, in steps (0: none)
lr_round_schedule: cosine             # constant, linear, cosine: that rate falls from round to round; by_step: training.schedule
                                      # (linear, cosine) and its warmup_steps go over the steps of all rounds
attempts_max: 3                       # failures of a task before its round fails; interruptions do not count: after an attempt
                                      # that was cancelled, preempted or killed, or whose time was up, the next one goes on
                                      # from the last saved state (training.save_interval), or else from step 1
# round_deadline_s: 604800            # the default, a week: then a round closes with its quorum, or fails
# quorum: 1                           # updates that are enough; default: all
# grace_s: 1800                       # the default: so long are the others waited for once the quorum is in
# evaluation_grace_s: 1800            # the default: and evaluations at the job's end, once half of them are there
# evaluation: {pause_when_worse: false}   # default: the job pauses at a model that is worse by half for most participants,
                                          # or three times for one of two; val_samples: 640 (a multiple of 64)
                                          # evaluates on the first 640 rows of each validation split, by default on all
# quarantine_after: 2                 # refused updates of a facility, which then trains no more for this job
)";

constexpr int kTailLinesMax = 10000;  // of one answer of dispatch

constexpr const char* kJobHelp = R"(Examples:
  atoll job init > job.yaml
  atoll job script job.yaml --facility leonardo
  atoll job submit job.yaml --check
  atoll job submit job.yaml --watch
  atoll job watch newest
  atoll job logs italian-czech --tail 50
JOB is a job's id or 8 characters of it, its name where only one has it, or newest.
In `job watch` and `round show` "last" is of the newest step, "mean" of a whole training, known when it is done.)";

Status run_init(const Context& context, const std::string& file) {
    if (file.empty() && context.json) {
        ATOLL_TRY(const json job, config::parse(kTemplate, "the template"));
        return print_json(job);
    }
    if (file.empty()) {
        std::cout << kTemplate;
        return {};
    }
    if (std::ifstream(file).good()) return invalid_argument("file", file + " exists already; it stays as it is");
    const Status written = write_file_atomic(file, kTemplate);
    if (!written.ok()) return invalid_argument("file", written.error().message);
    if (context.json) return print_json({{"file", file}});
    std::cout << "wrote " << file << "; edit it, then: atoll job submit " << file << "\n";
    return {};
}

Result<json> read_job(const std::string& file) {
    ATOLL_TRY(json spec, read_document(file));
    if (!spec.is_object() || spec.contains("name") || spec.contains("participants")) return spec;
    const auto other = run_settings::recognize_config(spec.dump());
    if (!other) return spec;
    return invalid_argument(file, "is " + std::string(run_settings::describe(other->tool)) +
                                      ", no job: `atoll-trainer config-from " + file +
                                      "` translates it into the `training` of one; `atoll job init` has the rest");
}

Status run_submit(const Context& context, const std::string& file, const std::string& key, bool watch) {
    ATOLL_TRY(const json spec, read_job(file));
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    const auto submitted = client.post_json("/v1/jobs", spec, key.empty() ? new_id() : key);
    if (!submitted.ok() && submitted.error().field == "Idempotency-Key")
        return Error{submitted.error().code,
                     submitted.error().code == ErrorCode::kConflict
                         ? "another job was submitted with the key " + in_quotes(key) + ": take another one"
                         : submitted.error().message,
                     "--key"};
    ATOLL_TRY(const json job, submitted);
    const std::string id = text(job, "id");
    for (const json& warning : job.value("warnings", json::array()))
        std::cerr << "warning: " << warning.get<std::string>() << "\n";
    if (context.json && !watch) return print_json(job);
    std::ostream& out = context.json ? std::cerr : std::cout;  // with both flags the output is the job's events
    out << "submitted job " << id << (watch ? "" : "; follow it with: atoll job watch " + id) << std::endl;
    return watch ? watch_job(context, id) : Status();
}

// "leonardo: Priority since 2026-03-01T12:00:00Z", one for each facility and reason.
std::vector<std::string> waits_of(const json& job) {
    std::vector<std::string> waits;
    for (const json& one : job.value("waits", json::array()))
        waits.push_back(text(one, "facility") + ": " + wait_text(one));
    return waits;
}

constexpr const char* kJobStates[] = {"running", "paused", "completed", "failed", "cancelled"};

bool is_job_state(const std::string& word) {
    return std::find(std::begin(kJobStates), std::end(kJobStates), word) != std::end(kJobStates);
}

// `only`: states; empty: all.
Status list_jobs(const Context& context, const std::vector<std::string>& only) {
    if (const std::string state = context.state_directory.string(); is_job_state(state))
        return invalid_argument("--state", "names the directory of a stack; for the jobs that are " + state +
                                               " type `atoll job list --only " + state + "`");
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(json jobs, get_all(client, "/v1/jobs"));
    const auto is_left_out = [&](const json& job) {
        return !only.empty() && std::find(only.begin(), only.end(), text(job, "state")) == only.end();
    };
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(), is_left_out), jobs.end());
    return print_items(
        context, jobs,
        {"job", cut("name"), "state", "round", droppable("submitted"), note("waits for, or why it failed")},
        [](const json& job) -> std::vector<std::string> {
            std::vector<std::string> why = waits_of(job);
            if (const std::string error = text(job, "error"); !error.empty()) why.insert(why.begin(), error);
            return {text(job, "id"), text(job, "name"),       text(job, "state"),
                    round_text(job), text(job, "created_at"), join(why, "; ")};
        });
}

Status show_job(const Context& context, http::Client& client, const std::string& id) {
    ATOLL_TRY(json job, client.get_json("/v1/jobs/" + segment(id)));
    if (context.json) return print_json(job);
    const json participants = job.value("participants", json::array());
    job.erase("participants");
    for (auto member = job.begin(); member != job.end();) member = member->is_null() ? job.erase(member) : ++member;
    std::cout << yaml_text(job, {"id", "name", "state", "error", "spoiled", "round", "index", "rounds"});
    if (!participants.empty()) std::cout << "participants:\n";
    for (const json& one : participants) std::cout << "- " << json_text(one, -1) << "\n";  // a line each, still YAML
    return {};
}

Status run_verb(const Context& context, http::Client& client, const std::string& id, const std::string& verb,
                const json& order = json::object()) {
    ATOLL_TRY(const json job, client.post_json("/v1/jobs/" + segment(id) + "/" + verb, order));
    if (context.json) return print_json(job);
    std::cout << "job " << id << " is " << text(job, "state");
    if (text(job, "state") == "running") std::cout << ", at round " << round_text(job);
    std::cout << "\n";
    if (verb == "cancel")  // its state is one thing, what still runs at the sites another
        for (const std::string& wait : waits_of(job)) print_line("  " + wait);
    return {};
}

Status readmit_facility(const Context& context, http::Client& client, const std::string& id,
                        const std::string& facility) {
    const std::string path = "/v1/jobs/" + segment(id);
    ATOLL_TRY(const json before, client.get_json(path));
    ATOLL_TRY(const json job,
              client.post_json(path + "/participants/" + segment(facility) + "/readmit", json::object()));
    if (context.json) return print_json(job);
    std::string state;
    for (const json& one : before.at("participants"))
        if (text(one, "facility") == facility) state = text(one, "state");
    if (state == "active")
        std::cout << facility << " was not in quarantine: it takes part in job " << id << " as before\n";
    else
        std::cout << facility << " trains from the next round of job " << id << " on\n";
    return {};
}

// Says where logs stay at the sites, as dispatch answers a deletion.
void print_left(const json& left) {
    for (const json& site : left)
        std::cout << "  logs stay at " << text(site, "facility") << ": " << site.at("tasks").size()
                  << " directories in "
                  << (site.at("work_dir").is_null() ? "its work directory" : text(site, "work_dir")) << "/tasks\n";
}

Status remove_job(const Context& context, http::Client& client, const std::string& id) {
    ATOLL_TRY(const auto answer, client.call(http::Method::kDelete, "/v1/jobs/" + segment(id)));
    ATOLL_TRY(const json removed, answer.json());
    if (context.json) return print_json(removed);
    std::cout << "job " << id << " is removed; its models stay (atoll model rm)\n";
    print_left(removed.at("left"));
    return {};
}

Status run_prune_jobs(const Context& context, const json& order) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json pruned, client.post_json("/v1/prune", order));
    if (context.json) return print_json(pruned);
    Table table({"job", cut("name"), "ended"});
    for (const json& job : pruned.at("jobs")) table.add({text(job, "id"), text(job, "name"), text(job, "finished_at")});
    if (!pruned.at("jobs").empty()) print(table);
    std::cout << counted(pruned.at("jobs").size(), "job") << ", "
              << counted(pruned.at("preparations").size(), "preparation") << ", " << text(pruned, "events")
              << " events and " << text(pruned, "attempts") << " earlier attempts "
              << (pruned.value("dry_run", false) ? "would go\n" : "are gone\n");
    return {};
}

Status run_logs(const Context& context, http::Client& client, const std::string& id, const std::string& task,
                int attempt, int tail) {
    std::string path = "/v1/jobs/" + segment(id) + "/logs?tail=" + std::to_string(tail);
    if (attempt > 0) path += "&attempt=" + std::to_string(attempt);
    if (!task.empty()) path += "&task=" + segment(task);
    if (context.json) {
        ATOLL_TRY(const json logs, client.get_json(path + "&format=json"));
        return print_json(logs.at("items"));
    }
    ATOLL_TRY(const auto answer, client.call(http::Method::kGet, path));
    ATOLL_RETURN_IF_ERROR(answer.check());
    std::cout << answer.body;
    return {};
}

// The newest training of a job at a facility.
Result<std::string> find_task(http::Client& client, const std::string& id, const std::string& facility) {
    ATOLL_TRY(const json rounds, get_all(client, "/v1/jobs/" + segment(id) + "/rounds"));
    std::string found;
    for (const json& round : rounds)
        for (const json& task : round.value("tasks", json::array()))
            if (text(task, "kind") == "train" && text(task, "facility") == facility) found = text(task, "id");
    if (found.empty()) return not_found("job " + id + " has trained nothing at \"" + facility + "\"", "--facility");
    return found;
}

// `what`: a job file, or a job and perhaps one of its tasks.
Status run_script(const Context& context, const std::string& what, const std::string& facility) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    const auto stroke = what.find('/');
    const bool is_file = what == "-" || std::ifstream(what).good();
    if (facility.empty() && (is_file || stroke == std::string::npos))
        return invalid_argument("--facility", "is required: whose batch script?");
    http::ClientResponse answer;
    if (is_file) {
        ATOLL_TRY(const json spec, read_job(what));
        ATOLL_TRY(answer, client.call(http::Method::kPost, "/v1/scripts?facility=" + segment(facility), spec.dump()));
    } else {
        ATOLL_TRY(const json jobs, get_all(client, "/v1/jobs"));
        ATOLL_TRY(const std::string id, find_job(jobs, what.substr(0, stroke), context.subject()));
        std::string task = stroke == std::string::npos ? "" : what.substr(stroke + 1);
        if (task.empty()) {
            ATOLL_TRY(task, find_task(client, id, facility));
        }
        ATOLL_TRY(answer,
                  client.call(http::Method::kGet, "/v1/jobs/" + segment(id) + "/tasks/" + segment(task) + "/script"));
    }
    ATOLL_RETURN_IF_ERROR(answer.check());
    if (context.json) return print_json({{"script", answer.body}});
    if (is_terminal_output())
        std::cout << answer.body;
    else
        write_as_it_is(std::cout, answer.body);  // what sbatch would get
    return {};
}

void add_init(CLI::App& group, Context& context) {
    auto* init = group.add_subcommand("init", "write a job file to start from");
    const auto file = std::make_shared<std::string>();
    init->add_option("file", *file, "default: standard output");
    set_example(*init, "atoll job init job.yaml");
    on_run(*init, context, [&context, file] { return run_init(context, *file); });
}

void add_submit(CLI::App& group, Context& context) {
    auto* submit = group.add_subcommand("submit", "send a job file");
    const auto file = std::make_shared<std::string>();
    const auto key = std::make_shared<std::string>();
    const auto watch = std::make_shared<bool>(false);
    submit->add_option("file", *file, "YAML or JSON; - is standard input")->required();
    submit->add_option("--key", *key, "any word: submitting again with the same one makes no second job");
    submit->add_flag("--watch", *watch, "follow it to its end");
    const auto check = std::make_shared<bool>(false);
    submit->add_flag("--check", *check, "submit nothing: show what would fail, and how many bytes would travel")
        ->excludes("--watch", "--key");
    set_example(*submit, "atoll job submit job.yaml --check");
    on_run(*submit, context, [&context, file, key, watch, check]() -> Status {
        if (!*check) return run_submit(context, *file, *key, *watch);
        ATOLL_TRY(const json spec, read_job(*file));
        return check_job(context, spec);
    });
}

void add_resume(CLI::App& group, Context& context) {
    struct Given {
        bool accepts = false;
        std::vector<std::string> without;
        std::optional<std::int64_t> from_round;
    };
    const auto given = std::make_shared<Given>();
    auto* resume =
        add_job_verb(group, context, "resume", "go on after a pause, or with the round that a failed job failed in",
                     [&context, given](http::Client& client, const std::string& id) {
                         json order = json::object();
                         if (given->accepts) order["accept"] = true;
                         if (!given->without.empty()) order["without"] = given->without;
                         if (given->from_round) order["from_round"] = *given->from_round;
                         return run_verb(context, client, id, "resume", order);
                     });
    resume->add_flag("--accept", given->accepts, "keep a model that its evaluations find worse than the one before");
    resume->add_option("--without", given->without, "a facility that trains no more for the job; may be repeated")
        ->allow_extra_args(false);
    resume->add_option("--from-round", given->from_round, "go back to the model of this round; 0: the base model")
        ->check(CLI::Range(0, 1'000'000));
    set_example(*resume, "atoll job resume newest --without leonardo");
}

void add_readmit(CLI::App& group, Context& context) {
    const auto facility = std::make_shared<std::string>();
    auto* readmit = add_job_verb(group, context, "readmit", "let a quarantined facility train again",
                                 [&context, facility](http::Client& client, const std::string& id) {
                                     return readmit_facility(context, client, id, *facility);
                                 });
    readmit->add_option("facility", *facility, "whose refused updates are forgotten")->required();
    set_example(*readmit, "atoll job readmit newest leonardo");
}

void add_logs(CLI::App& group, Context& context) {
    const auto task = std::make_shared<std::string>();
    const auto attempt = std::make_shared<int>(0);
    const auto tail = std::make_shared<int>(100);
    auto* logs = add_job_verb(group, context, "logs", "what its tasks wrote at the facilities",
                              [&context, task, attempt, tail](http::Client& client, const std::string& id) {
                                  return run_logs(context, client, id, *task, *attempt, *tail);
                              });
    logs->add_option("--task", *task, "one task's id; default: all of the current round");
    logs->add_option("--attempt", *attempt, "its number; default: the newest of each task")
        ->check(CLI::Range(1, INT32_MAX));
    logs->add_option("--tail", *tail, "newest lines")->check(CLI::Range(1, kTailLinesMax))->capture_default_str();
    set_example(*logs, "atoll job logs newest --tail 50");
}

void add_script(CLI::App& group, Context& context) {
    auto* script = group.add_subcommand("script", "the batch script that a task puts into its facility's queue");
    const auto what = std::make_shared<std::string>();
    const auto facility = std::make_shared<std::string>();
    script->add_option("job", *what, "a job file, nothing of which is submitted; or JOB, or JOB/TASK")->required();
    script->add_option("--facility", *facility, "whose training; of JOB the newest");
    set_example(*script, "atoll job script job.yaml --facility leonardo");
    on_run(*script, context, [&context, what, facility] { return run_script(context, *what, *facility); });
}

void add_prune_jobs(CLI::App& group, Context& context) {
    struct Given {
        bool dry_run = false;
        int events_days = -1;
        int jobs_days = 0;
    };
    const auto given = std::make_shared<Given>();
    auto* prune = group.add_subcommand("prune", "forget what ended long ago, now (admin)");
    prune->add_flag("--dry-run", given->dry_run, "only say what would go");
    prune
        ->add_option("--keep-events", given->events_days,
                     "days after a job's end that its events and earlier attempts stay; default: dispatch's "
                     "keep_events_days")
        ->check(CLI::Range(0, 36500));
    prune
        ->add_option("--keep-jobs", given->jobs_days,
                     "days after their end that jobs and preparations stay; default: dispatch's keep_jobs_days")
        ->check(CLI::Range(1, 36500));
    set_example(*prune, "atoll job prune --keep-jobs 365 --dry-run");
    on_run(*prune, context, [&context, given] {
        json order = {{"dry_run", given->dry_run}};
        if (given->events_days >= 0) order["keep_events_days"] = given->events_days;
        if (given->jobs_days > 0) order["keep_jobs_days"] = given->jobs_days;
        return run_prune_jobs(context, order);
    });
}

}  // namespace

CLI::App* add_job_verb(CLI::App& group, Context& context, const char* verb, const char* about, JobBody body) {
    auto* command = group.add_subcommand(verb, about);
    const auto id = std::make_shared<std::string>();
    command->add_option("job", *id, "the job's id or 8 characters of it, its name, or newest")->required();
    set_example(*command, "atoll " + group.get_name() + " " + verb + " newest");
    on_run(*command, context, [&context, id, body = std::move(body)]() -> Status {
        ATOLL_TRY(http::Client client, context.client("dispatch"));
        ATOLL_TRY(const json jobs, get_all(client, "/v1/jobs"));
        ATOLL_TRY(const std::string found, find_job(jobs, *id, context.subject()));
        return body(client, found);
    });
    return command;
}

void add_job_commands(CLI::App& program, Context& context) {
    auto* group = program.add_subcommand("job", "federations: facilities that train one model in rounds")
                      ->require_subcommand(1)
                      ->footer(kJobHelp);
    add_init(*group, context);
    add_submit(*group, context);
    add_script(*group, context);
    auto* list = group->add_subcommand("list", "all jobs");
    const auto only = std::make_shared<std::vector<std::string>>();
    list->add_option("--only", *only, "those in these states: running, paused, completed, failed, cancelled")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(kJobStates), std::end(kJobStates))));
    set_example(*list, "atoll job list --only running,paused");
    on_run(*list, context, [&context, only] { return list_jobs(context, *only); });
    add_job_verb(*group, context, "show", "one job, all fields",
                 [&context](http::Client& client, const std::string& id) { return show_job(context, client, id); });
    add_job_verb(*group, context, "watch", "follow a job to its end",
                 [&context](http::Client&, const std::string& id) { return watch_job(context, id); });
    for (const auto& [verb, about] :
         {std::pair{"pause", "start no further task"}, {"cancel", "end the job and its batch jobs"}})
        add_job_verb(*group, context, verb, about,
                     [&context, verb = std::string(verb)](http::Client& client, const std::string& id) {
                         return run_verb(context, client, id, verb);
                     });
    add_resume(*group, context);
    add_readmit(*group, context);
    add_logs(*group, context);
    add_job_metrics(*group, context);
    add_job_verb(*group, context, "rm", "remove a job that has ended; its models stay",
                 [&context](http::Client& client, const std::string& id) { return remove_job(context, client, id); });
    add_prune_jobs(*group, context);
}

}  // namespace atl::cli
