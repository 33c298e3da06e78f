#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <thread>

#include "services/stack/layout.h"
#include "shared/base/file.h"
#include "shared/base/interrupt.h"
#include "tests/e2e/demo/corpus.h"
#include "tests/e2e/demo/federation.h"
#include "tests/e2e/demo/job_progress.h"
#include "tests/e2e/demo/process.h"
#include "tests/e2e/demo/report.h"
#include "tests/e2e/demo/scenario.h"
#include "tests/e2e/demo/setup.h"
#include "tests/e2e/demo/slurm_site.h"

// The main job from nothing to the table: two facilities, Italian and Czech, one model.
namespace atl::demo {
namespace {

namespace fs = std::filesystem;
using json::Json;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSequenceLength = 128;
constexpr int kPublicOneIn = 10;
constexpr int kRows = 16;  // of a rank in a step
constexpr int kValidationPercent = 6;
constexpr std::uint16_t kPortFirst = 7400;  // of `atoll up`
constexpr std::uint16_t kPortLast = 7402;
constexpr int kComparisonsFailed = 4;  // exit status
constexpr auto kJobTimeout = std::chrono::minutes(20);

struct Options {
    fs::path programs;  // where atoll and atoll-trainer are
    fs::path state = "build/demo";
    int rounds = 10;
    int steps = 30;
    int warm_up_steps = 60;
    std::optional<std::uint16_t> port_base;  // none: 7400, or any free ones
    bool slurm = false;
    bool down = false;
};

// Says so when they are not.
bool usual_ports_are_free() {
    for (std::uint16_t port = kPortFirst; port <= kPortLast; ++port) {
        if (stack::port_is_free(port)) continue;
        fmt::print("   port {} is taken by another program: using any free ports instead of {} to {}\n", port,
                   kPortFirst, kPortLast);
        return false;
    }
    return true;
}

// One run of `atoll-trainer tokenize`.
struct Tokens {
    fs::path input;
    std::string prompt_template;
    std::string split;
    fs::path out;
};

class Demo {
  public:
    explicit Demo(Options options) : options_(std::move(options)) {}

    Status run();
    Status down();
    // Of a run: the federation gave what it must.
    bool all_hold() const { return all_hold_; }

  private:
    std::string program(const std::string& name) const { return (options_.programs / name).string(); }
    fs::path work(const std::string& name) const { return options_.state / name; }
    Status phase(const std::string& name, const std::string& what, const std::function<Status()>& body);

    Status make_corpora();
    Status make_base();
    Status start_stack();
    Result<Json> make_facility(const Site& site);
    Status register_all();
    Status federate();
    Status train_alone();
    Status train_pooled();
    Result<Perplexity> train_pooled_by(const std::string& name, const Json& settings);
    Status generate_samples();
    Status finish();

    Status train(const std::string& base, const std::string& data, const std::string& out, const Json& settings);
    Status tokenize(const Tokens& tokens);
    Json job_spec(const std::string& name, const std::vector<const Site*>& participants) const;
    Result<JobProgress> follow(const std::string& id);

    Options options_;
    Report report_;
    std::optional<Coordinator> coordinator_;
    std::string gateway_;
    fs::path image_;  // with --slurm
    bool all_hold_ = true;
    Clock::time_point started_ = Clock::now();
};

Status Demo::phase(const std::string& name, const std::string& what, const std::function<Status()>& body) {
    fmt::print("\n== {}: {}\n", name, what);
    std::fflush(stdout);
    const auto begin = Clock::now();
    ATOLL_RETURN_IF_ERROR(body());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    report_.wall_s.emplace_back(name, seconds);
    fmt::print("   {:.1f} s\n", seconds);
    return {};
}

Status Demo::make_corpora() {
    std::string public_rows;
    std::string pooled_rows;
    for (const Site& site : sites()) {
        ATOLL_TRY(const auto files, fortune_files(site.dataset));
        ATOLL_TRY(const Corpus corpus, read_fortunes(files, kPublicOneIn));
        // Only this facility's directory ever holds its private documents.
        ATOLL_RETURN_IF_ERROR(write_jsonl(work("sites") / site.facility / "corpus.jsonl", corpus.private_documents));
        public_rows += to_instructed_jsonl(site.instruction, corpus.public_documents);
        pooled_rows += to_instructed_jsonl(site.instruction, corpus.private_documents);
        fmt::print("   {}: {} documents at {}, {} in the public sample\n", site.dataset,
                   corpus.private_documents.size(), site.facility, corpus.public_documents.size());
    }
    fs::create_directories(work("public"));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(work("public") / "corpus.jsonl", public_rows));
    // The forbidden comparison, a model trained on all text in one place, exists in this demo alone.
    fs::create_directories(work("pooled"));
    return write_file_atomic(work("pooled") / "corpus.jsonl", pooled_rows);
}

Status Demo::tokenize(const Tokens& tokens) {
    std::vector<std::string> command = {program("atoll-trainer"), "tokenize", "--tokenizer", work("tokenizer")};
    const auto add = [&](std::initializer_list<std::string> words) { command.insert(command.end(), words); };
    add({"--input", tokens.input, "--template", tokens.prompt_template, "--out", tokens.out});
    add({"--seq-len", std::to_string(kSequenceLength), "--batching", "packing"});
    if (tokens.split != "all")
        add({"--split", tokens.split, "--validation-percent", std::to_string(kValidationPercent)});
    ATOLL_RETURN_IF_ERROR(run_program(command));
    return {};
}

Status Demo::train(const std::string& base, const std::string& data, const std::string& out, const Json& settings) {
    const fs::path config = out + ".run.json";
    ATOLL_RETURN_IF_ERROR(write_file_atomic(config, settings.dump(2)));
    // Two ranks, each with a thread of its own and a shard of the model.
    ATOLL_TRY(const std::string output,
              run_program({ATOLL_MPIRUN, "2", program("atoll-trainer"), "train", "--model", base, "--data", data,
                           "--out", out, "--config", config, "--threads", "1", "--sharding", "full_shard"}));
    ATOLL_TRY(const Json summary, last_json_line(output));
    fmt::print("   {} steps, mean loss {:.3f}, {:.0f} tokens/s on 2 ranks\n", summary["steps"].get<int>(),
               summary["loss"].get<double>(), summary["tokens_per_s"].get<double>());
    return {};
}

Status Demo::make_base() {
    const std::string corpus = work("public") / "corpus.jsonl";
    ATOLL_RETURN_IF_ERROR(
        make_random_model(options_.programs, {corpus, model_config(), work("tokenizer"), work("random")}));
    ATOLL_RETURN_IF_ERROR(tokenize({corpus, kMixedTemplate, "all", work("public") / "data"}));
    return train(work("random"), work("public") / "data", work("base"), base_settings(options_.warm_up_steps, 8));
}

Status Demo::start_stack() {
    say_on_interrupt("What the demo started runs on without you, its stack and its jobs; `./dev demo --down` ends it.");
    std::vector<std::string> up = {program("atoll"), "up", "--state", work("stack")};
    if (options_.port_base || !usual_ports_are_free())
        up.insert(up.end(), {"--port-base", std::to_string(options_.port_base.value_or(0))});
    if (run_attached(up) != 0) return internal_error("`atoll up` failed; its words are above");
    ATOLL_RETURN_IF_ERROR(give_to_stack(work("sites"), work("stack")));
    ATOLL_TRY(const StackAddress stack, read_stack(work("stack")));
    gateway_ = stack.gateway;
    coordinator_.emplace(stack);
    return {};
}

// With the site's text in its work directory.
Result<Json> Demo::make_facility(const Site& site) {
    const fs::path work_dir = work("sites") / site.facility;
    if (!options_.slurm) return local_facility(site.facility, work_dir);
    ATOLL_TRY(const SlurmSite cluster, SlurmSite::start(site.facility));
    ATOLL_RETURN_IF_ERROR(give_to_stack(cluster.private_key(), work("stack")));
    ATOLL_RETURN_IF_ERROR(cluster.copy_in(work_dir / "corpus.jsonl", "corpus.jsonl"));
    ATOLL_TRY(const std::string why, cluster.why_no_image());
    fmt::print("   {}: a Slurm cluster of two nodes; {}\n", site.facility,
               why.empty() ? "its programs are in an image" : "no image, as " + why);
    std::fflush(stdout);
    if (why.empty()) {
        if (image_.empty()) {
            ATOLL_TRY(image_, cluster.build_image(options_.programs));
        }
        ATOLL_RETURN_IF_ERROR(cluster.copy_in(image_, "trainer.sif"));
        return cluster.facility_with_image("trainer.sif");
    }
    for (const std::string name : {"atoll", "atoll-trainer"})
        ATOLL_RETURN_IF_ERROR(cluster.copy_in(program(name), "programs/" + name));
    return cluster.facility_with_programs("programs");
}

Status Demo::register_all() {
    ATOLL_RETURN_IF_ERROR(push_base(options_.programs, work("stack"), "demo-base", work("base")));
    if (options_.slurm) ATOLL_RETURN_IF_ERROR(write_file_atomic(work("has-clusters"), ""));  // for down()
    std::vector<std::string> preparations;
    for (const Site& site : sites()) {
        ATOLL_TRY(Json facility, make_facility(site));
        ATOLL_TRY(std::string id, register_site(*coordinator_, {std::move(facility), registered_dataset(site),
                                                                "demo-base", kSequenceLength, kValidationPercent}));
        preparations.push_back(std::move(id));
    }
    for (const std::string& id : preparations)
        ATOLL_RETURN_IF_ERROR(coordinator_->await_preparation(id, std::chrono::seconds(120)));
    return {};
}

Json Demo::job_spec(const std::string& name, const std::vector<const Site*>& participants) const {
    Json spec = {{"name", name},
                 {"model", {{"name", "demo-base"}, {"version", "base"}}},
                 {"rounds", options_.rounds},
                 {"strategy", strategy(participants.size())},
                 {"training", federated_settings(options_.steps, kRows)},
                 {"lr_round_schedule", "by_step"},
                 {"participants", Json::array()},
                 {"evaluation", {{"at", Json::array()}, {"models", "global"}}}};
    // All facilities are this machine: those that train at once share its cores.
    spec["training"]["threads"] = std::max<std::size_t>(1, std::thread::hardware_concurrency() / sites().size());
    for (const Site* site : participants)
        spec["participants"].push_back({{"facility", site->facility}, {"dataset", site->dataset}, {"ranks", 1}});
    for (const Site& site : sites())
        spec["evaluation"]["at"].push_back({{"facility", site.facility}, {"dataset", site.dataset}});
    return spec;
}

Result<JobProgress> Demo::follow(const std::string& id) {
    std::map<std::string, std::string> languages;
    for (const Site& site : sites()) languages[site.dataset] = site.language;
    JobProgress progress(std::move(languages));
    ATOLL_TRY(const std::string state, coordinator_->follow(id, kJobTimeout, [&](const Json& event) {
        const std::string line = progress.take(event);
        if (line.empty()) return;
        fmt::print("   {}\n", line);
        std::fflush(stdout);
    }));
    if (state != "completed") return internal_error("job " + id + " ended as " + state);
    return progress;
}

Status Demo::federate() {
    std::vector<const Site*> participants;
    for (const Site& site : sites()) participants.push_back(&site);
    ATOLL_TRY(report_.job, coordinator_->submit(job_spec("fortunes", participants)));
    ATOLL_TRY(const JobProgress progress, follow(report_.job));
    for (const auto& [number, round] : progress.rounds()) {
        if (number == 0) {
            report_.base = round.perplexity.at("base");
            continue;
        }
        RoundReport row{number, round.model, round.perplexity.at("global"), {}};
        for (const Site& site : sites()) {
            const JobProgress::Training& training = round.training.at(site.facility);
            row.facilities.push_back({site.facility,
                                      site.language,
                                      training.steps,
                                      training.tokens,
                                      training.mean_loss(),
                                      training.tokens_per_s,
                                      {},
                                      {}});
        }
        report_.rounds.push_back(std::move(row));
    }
    return {};
}

// The same job with one participant each: as many steps on its own text, nothing from anybody else.
Status Demo::train_alone() {
    std::vector<std::string> ids;
    for (const Site& site : sites()) {
        ATOLL_TRY(std::string id, coordinator_->submit(job_spec("solo-" + site.facility, {&site})));
        ids.push_back(std::move(id));
    }
    // One after the other: the second one's events wait meanwhile.
    for (std::size_t i = 0; i < ids.size(); ++i) {
        ATOLL_TRY(const JobProgress progress, follow(ids[i]));
        for (RoundReport& row : report_.rounds)
            row.facilities[i].solo = progress.rounds().at(row.round).perplexity.at("global");
    }
    return {};
}

// As many steps as the federation's rounds have together, each on as many rows: two ranks have a facility's each.
Status Demo::train_pooled() {
    const std::string corpus = work("pooled") / "corpus.jsonl";
    ATOLL_RETURN_IF_ERROR(tokenize({corpus, kMixedTemplate, "train", work("pooled") / "data"}));
    for (const Site& site : sites())
        ATOLL_RETURN_IF_ERROR(tokenize({work("sites") / site.facility / "corpus.jsonl", prompt_template(site),
                                        "validation", work("pooled") / site.language}));
    const int steps = options_.rounds * options_.steps;
    ATOLL_TRY(report_.pooled_adamw, train_pooled_by("adamw", pooled_adamw_settings(steps, kRows)));
    ATOLL_TRY(report_.pooled, train_pooled_by("muon", pooled_muon_settings(steps, kRows)));
    return {};
}

Result<Perplexity> Demo::train_pooled_by(const std::string& name, const Json& settings) {
    const fs::path model = work("pooled") / name;
    ATOLL_RETURN_IF_ERROR(train(work("base"), work("pooled") / "data", model, settings));
    Perplexity reached;
    for (const Site& site : sites()) {
        ATOLL_TRY(const std::string output, run_program({program("atoll-trainer"), "eval", "--model", model, "--data",
                                                         work("pooled") / site.language}));
        ATOLL_TRY(const Json line, last_json_line(output));
        reached.of(site.language) = line["perplexity"].get<double>();
    }
    return reached;
}

Status Demo::generate_samples() {
    const fs::path model = work("global");
    ATOLL_RETURN_IF_ERROR(run_program({program("atoll"), "model", "pull", "--state", work("stack"),
                                       "fortunes@" + report_.rounds.back().model, "--out", model}));
    for (const Site& site : sites()) {
        ATOLL_TRY(std::string text,
                  run_program({program("atoll-trainer"), "generate", "--model", model, "--prompt", site.instruction,
                               "--max-tokens", "60", "--temperature", "0.7", "--top-p", "0.9", "--seed", "4"}));
        fmt::print("   {}: {}\n", site.language, text);
        report_.samples[site.language] = std::move(text);
    }
    return {};
}

Status Demo::finish() {
    const double total = std::chrono::duration<double>(Clock::now() - started_).count();
    report_.wall_s.emplace_back("total", total);
    ATOLL_RETURN_IF_ERROR(write_file_atomic(options_.state / "report.json", to_json(report_).dump(2) + "\n"));
    fmt::print("\nPerplexity on validation documents (lower is better), after every round:\n\n{}\n", to_table(report_));
    for (const Verdict& verdict : judge(report_)) {
        fmt::print("{} {}\n", verdict.holds ? "[ok]  " : "[FAIL]", verdict.text);
        all_hold_ = all_hold_ && verdict.holds;
    }
    fmt::print("\n{:.0f} s in all; report: {}\n", total, (options_.state / "report.json").string());
    fmt::print("The stack still runs at {}; `./dev demo --down` ends it.\n", gateway_);
    return {};
}

Status Demo::down() {
    // There is none, or `atoll down --delete` has deleted it, which keeps its logs.
    if (fs::exists(work("stack/stack.json")) &&
        run_attached({program("atoll"), "down", "--cancel-jobs", "--state", work("stack")}) != 0)
        return internal_error("`atoll down` failed; its words are above");
    if (!fs::exists(work("has-clusters"))) return {};
    for (const Site& site : sites()) ATOLL_RETURN_IF_ERROR(SlurmSite::remove(site.facility));
    fs::remove(work("has-clusters"));
    return {};
}

// Every demo begins from nothing: what an earlier one left is ended and removed.
Status Demo::run() {
    if (fs::exists(options_.state))
        fmt::print("   the earlier demo in {} is ended and deleted\n", options_.state.string());
    std::fflush(stdout);
    ATOLL_RETURN_IF_ERROR(down());
    ATOLL_RETURN_IF_ERROR(make_reachable(options_.state));
    ATOLL_RETURN_IF_ERROR(
        phase("text", "documents of two Debian packages, a site each", [&] { return make_corpora(); }));
    ATOLL_RETURN_IF_ERROR(
        phase("stack", "Postgres, Kafka, nginx and the four services", [&] { return start_stack(); }));
    ATOLL_RETURN_IF_ERROR(
        phase("base", "tokenizer and base model from the public sample", [&] { return make_base(); }));
    ATOLL_RETURN_IF_ERROR(
        phase("prepare", "facilities, data sets, tokenised at their sites", [&] { return register_all(); }));
    ATOLL_RETURN_IF_ERROR(phase("federation", "both facilities, one model", [&] { return federate(); }));
    ATOLL_RETURN_IF_ERROR(phase("solo", "each facility alone, for comparison", [&] { return train_alone(); }));
    ATOLL_RETURN_IF_ERROR(phase("pooled", "all text in one place, for comparison", [&] { return train_pooled(); }));
    ATOLL_RETURN_IF_ERROR(phase("samples", "what the global model writes", [&] { return generate_samples(); }));
    return finish();
}

}  // namespace
}  // namespace atl::demo

int main(int argc, char** argv) {
    using namespace atl::demo;
    Options options;
    options.programs = std::filesystem::canonical("/proc/self/exe").parent_path();
    CLI::App app{
        "Runs the demo federation: two facilities, Italian and Czech, one model.\n"
        "First it ends and deletes what an earlier demo left in the state directory.\n\n"
        "  atoll-demo --state build/demo\n  atoll-demo --state build/demo --rounds 3 --steps 10\n"
        "  atoll-demo --state build/demo --slurm\n\n"
        "Exit status: 4 if a comparison at its end does not hold, 1 for any other failure."};
    app.add_option("--state", options.state, "Directory of everything the demo writes")->capture_default_str();
    app.add_option("--programs", options.programs, "Directory of atoll and atoll-trainer");
    app.add_option("--rounds", options.rounds, "Rounds of each job")->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--steps", options.steps, "Steps a round")->check(CLI::Range(1, 10000))->capture_default_str();
    app.add_option("--warm-up-steps", options.warm_up_steps, "Steps of the base model on the public sample")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    app.add_option("--port-base", options.port_base,
                   "First of three TCP ports on 127.0.0.1; 0: any free ones; default: 7400, or any free ones if taken");
    app.add_flag("--slurm", options.slurm,
                 "Each facility is a Slurm cluster with a user and an sshd of its own (as root, with slurm-wlm)");
    app.add_flag("--down", options.down, "End the stack that an earlier demo left running, its jobs first");
    CLI11_PARSE(app, argc, argv);
    Demo demo(options);
    try {
        const atl::Status status = options.down ? demo.down() : demo.run();
        if (status.ok() && demo.all_hold()) return 0;
        fmt::print(stderr, "atoll-demo: {}\n",
                   status.ok() ? "the federation did not give what it must" : describe(status.error()));
        if (status.ok()) return kComparisonsFailed;
    } catch (const std::exception& error) {  // an answer without a field that it should have, a full disk
        fmt::print(stderr, "atoll-demo: {}\n", error.what());
    }
    return 1;
}
