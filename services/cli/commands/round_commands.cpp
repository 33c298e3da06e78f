#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/job_verb.h"
#include "services/cli/commands/round_verify.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/terminal.h"
#include "services/cli/usage.h"
#include "services/cli/watch/evaluation_progress.h"
#include "services/cli/watch/metrics_table.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

using nlohmann::json;

// What each update is in the round's model, once there is one.
void print_contributions(const json& round) {
    const json tasks = round.value("tasks", json::array());
    const bool has_variates = std::ranges::any_of(
        tasks, [](const json& task) { return task.value("contribution", json()).contains("control_variate_norm"); });
    std::vector<Column> header = {"update of", "share", "norm", droppable("cosine to the others"), "counted"};
    if (has_variates) header.insert(header.end(), {"norm of control variate", "counted of it"});
    Table table(header);
    bool is_empty = true;
    std::vector<std::string> opposed;
    for (const json& task : tasks) {
        const json one = task.value("contribution", json());
        if (!one.is_object()) continue;
        const auto cell = [&](const char* key, double times, const char* unit) {
            return figure_text(one, key, times, unit);
        };
        std::vector<std::string> row = {text(task, "facility"), cell("share", 100, " %"), cell("norm", 1, ""),
                                        cell("cosine", 1, ""), cell("counted", 100, " %")};
        if (has_variates) {
            row.push_back(cell("control_variate_norm", 1, ""));
            row.push_back(cell("control_variate_counted", 100, " %"));
        }
        table.add(row);
        is_empty = false;
        if (const std::string opposition = opposition_text(one); !opposition.empty())
            opposed.push_back(text(task, "facility") + "'s " + opposition);
    }
    if (!is_empty) print(table);
    for (const std::string& one : opposed) print_line(one);
}

// What stands in a task's way, why its batch job waits, or why it failed.
std::string reason_text(const json& task) {
    const std::string waiting = waiting_text(task.value("waiting", json()));
    if (!waiting.empty()) return waiting;
    const std::string queued = text(task, "queue_reason");
    return queued.empty() ? text(task, "error") : queued + " since " + text(task, "queue_reason_since");
}

// Why there is more than one attempt of a task, and where each training went on.
void print_earlier_attempts(const json& round) {
    for (const json& task : round.value("tasks", json::array())) {
        const std::string whose = text(task, "facility") + "  " + text(task, "kind") + "  attempt ";
        std::int64_t reached = 0;
        for (const json& one : task.value("earlier_attempts", json::array())) {
            const std::int64_t last = one.value("last_step", std::int64_t{0});
            reached = std::max(reached, last);
            print_line(whose + text(one, "attempt") + " ended" + (last > 0 ? fmt::format(" after step {}", last) : "") +
                       ": " + text(one, "error"));
        }
        const std::string from = resumption_text(task.value("first_step", std::int64_t{0}), reached);
        if (!from.empty()) print_line(whose + text(task, "attempt") + " " + from);
    }
}

void print_round(const json& round) {
    std::cout << "round " << text(round, "round");
    if (text(round, "index") != text(round, "round")) std::cout << " (as round " << text(round, "index") << ")";
    std::cout << "  " << text(round, "state");
    const std::size_t shown = is_terminal_output() ? 16 : std::string::npos;  // so much of a digest names its version
    if (const std::string version = text(round, "version"); !version.empty())
        std::cout << "  model " << version.substr(0, shown);
    std::cout << "\n";
    if (const std::string waiting = waiting_text(round.value("waiting", json())); !waiting.empty())
        print_line("its aggregation " + waiting);
    std::vector<Column> header = {"facility", "task", "state", "at", droppable("attempt"), "done"};
    const json all = round.value("tasks", json::array());
    const bool validates = std::any_of(all.begin(), all.end(),
                                       [](const json& task) { return has_validation(task.value("progress", json())); });
    for (const Column& column : training_header(validates)) header.push_back(column);
    header.push_back(note("error, or what it waits for"));
    Table tasks(header);
    for (const json& task : all) {
        std::string done = text(task, "progress", "step");
        if (!done.empty()) done = "step " + done;
        if (const std::string models = text(task, "models"); !models.empty())
            done = text(task, "models_done") + " of " + models + (models == "1" ? " model" : " models");
        if (const json moving = task.value("moving", json()); moving.is_object())
            done = human_bytes(moving.value("bytes_done", std::uint64_t{0})) + " of " +
                   human_bytes(moving.value("bytes_total", std::uint64_t{0}));
        std::vector<std::string> row = {text(task, "facility"), text(task, "kind"),    text(task, "state"),
                                        text(task, "step"),     text(task, "attempt"), done};
        for (std::string& cell :
             training_cells(task.value("progress", json()), task.value("metrics", json()), validates))
            row.push_back(std::move(cell));
        row.push_back(reason_text(task));
        tasks.add(std::move(row));
    }
    print(tasks);
    print_contributions(round);
    print_earlier_attempts(round);
    Table evaluations({"model of", cut("dataset"), cut("at"), "perplexity", "tokens"});
    for (const json& one : round.value("evaluations", json::array()))
        evaluations.add({text(one, "which"), text(one, "dataset"), text(one, "facility"), text(one, "perplexity"),
                         text(one, "tokens")});
    if (!round.value("evaluations", json::array()).empty()) print(evaluations);
    if (const std::string failed = failed_evaluations_text(round.value("failed_evaluations", json())); !failed.empty())
        print_line(failed);
}

Status run_round_show(const Context& context, http::Client& client, const std::string& id, std::optional<int> number) {
    if (number && *number < 0) return invalid_argument("round", "must be 0 or more, got " + std::to_string(*number));
    ATOLL_TRY(json rounds, get_all(client, "/v1/jobs/" + segment(id) + "/rounds"));
    if (number) {
        json one = json::array();
        for (const json& round : rounds)
            if (text(round, "round") == std::to_string(*number)) one.push_back(round);
        if (one.empty()) return not_found("job " + id + " has no round " + std::to_string(*number), "round");
        rounds = std::move(one);
    }
    if (context.json) return print_json(rounds);
    for (const json& round : rounds) print_round(round);
    return {};
}

void add_verify(CLI::App& group, Context& context) {
    struct Given {
        int number = 0;
        std::vector<std::string> without;
        std::optional<std::filesystem::path> dir, out;
    };
    const auto given = std::make_shared<Given>();
    auto* verify = add_job_verb(
        group, context, "verify", "recompute a round's model from its updates, and compare the two",
        [&context, given](http::Client&, const std::string& id) {
            const auto& without = given->without;
            return verify_round(context, id, given->number, {{without.begin(), without.end()}, given->dir, given->out});
        });
    verify->add_option("round", given->number, "its number")->required()->check(CLI::Range(1, 1'000'000));
    verify
        ->add_option("--without", given->without,
                     "a facility whose update is left out, to see what the model would have been; may be repeated")
        ->allow_extra_args(false);
    verify->add_option("--dir", given->dir,
                       "where the base and the updates are fetched to and stay; default: a temporary directory");
    verify->add_option("--out", given->out, "the directory to make of the model; default: it is not kept");
    set_example(*verify, "atoll round verify newest 3 --without leonardo --out without-leonardo");
}

}  // namespace

void add_round_commands(CLI::App& program, Context& context) {
    auto* rounds = program.add_subcommand("round", "rounds of a job")->require_subcommand(1);
    set_example(*rounds, "atoll round show newest");
    const auto number = std::make_shared<std::optional<int>>();
    auto* show =
        add_job_verb(*rounds, context, "show", "tasks, losses, perplexities and models of one round, or of all",
                     [&context, number](http::Client& client, const std::string& id) {
                         return run_round_show(context, client, id, *number);
                     });
    show->add_option("round", *number, "its number; default: all");
    set_example(*show, "atoll round show newest 3");
    add_verify(*rounds, context);
}

}  // namespace atl::cli
