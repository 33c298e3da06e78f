#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/job_verb.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/watch/job_curves.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kMetricsHelp =
    R"(Each step of each training and the perplexity of each model, from the job's events: dispatch keeps those for
keep_events_days after its end. Examples:
  atoll job metrics newest --csv > curves.csv
  atoll job metrics newest --openmetrics > curves.txt
promtool makes blocks of the second, for the storage directory of a Prometheus:
  promtool tsdb create-blocks-from openmetrics curves.txt /var/lib/prometheus/metrics2)";

Result<JobCurves> read_curves(http::Client& client, const std::string& path) {
    ATOLL_TRY(const json rounds, get_all(client, path + "/rounds"));
    JobCurves curves(rounds);
    for (std::string after = "0";;) {
        ATOLL_TRY(const json page, client.get_json(path + "/events?limit=1000&after=" + after));
        const json& items = page.at("items");
        for (const json& event : items) curves.apply(event);
        if (items.empty()) return curves;
        after = text(items.back(), "number");
    }
}

std::string number_text(const std::optional<double>& value) {
    return value ? human_number(*value) : "";
}

void print_summary(const JobCurves& curves) {
    Table table({"round", "facility", cut("dataset"), "steps", "first loss", "last loss"});
    for (const auto& one : curves.trainings())
        table.add({std::to_string(one.round), one.facility, one.dataset, std::to_string(one.points.size()),
                   number_text(one.first_loss()), number_text(one.last_loss())});
    print(table);
}

struct Form {
    bool openmetrics = false;
    bool csv = false;
};

Status run_metrics(const Context& context, http::Client& client, const std::string& id, const Form& form) {
    if (context.json && (form.csv || form.openmetrics))
        return invalid_argument("--json", std::string("and ") + (form.csv ? "--csv" : "--openmetrics") +
                                              " are two forms of the same numbers: give one of them");
    const std::string path = "/v1/jobs/" + segment(id);
    ATOLL_TRY(const json job, client.get_json(path));
    ATOLL_TRY(const JobCurves curves, read_curves(client, path));
    if (context.json) return print_json(curves.json());
    if (form.openmetrics || form.csv)
        std::cout << (form.csv ? curves.csv() : curves.openmetrics(text(job, "name")));
    else if (!curves.empty())
        print_summary(curves);
    if (curves.empty()) std::cerr << "the job has no steps: none was made yet, or its events are gone\n";
    return {};
}

}  // namespace

void add_job_metrics(CLI::App& group, Context& context) {
    const auto form = std::make_shared<Form>();
    auto* metrics = add_job_verb(group, context, "metrics", "loss, speed and perplexity of every step",
                                 [&context, form](http::Client& client, const std::string& id) {
                                     return run_metrics(context, client, id, *form);
                                 });
    auto* openmetrics = metrics->add_flag("--openmetrics", form->openmetrics, "for promtool and Prometheus");
    metrics->add_flag("--csv", form->csv, "a line a step")->excludes(openmetrics);
    metrics->footer(kMetricsHelp);
}

}  // namespace atl::cli
