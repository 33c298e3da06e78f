#include "services/dispatch/work/batch_job.h"

#include "services/dispatch/domain/preparation_spec.h"
#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/domain/training_settings.h"
#include "services/dispatch/sites/image_command.h"
#include "shared/base/text.h"
#include "shared/run_settings/chat_templates.h"
#include "shared/site/attempt_files.h"

namespace atl::dispatch {
namespace {

// Where the documents for validation are in files of their own each split is the whole of its input.
std::vector<std::string> tokenize_command(const Site& site, const PrepareParams& prepare, const std::string& split) {
    const auto chat = run_settings::chat_template_of(prepare.prompt_template);
    const bool has_own = !prepare.validation_input.empty();
    std::vector<std::string> inputs;
    for (const std::string& path :
         input_paths(has_own && split == "validation" ? prepare.validation_input : prepare.input))
        inputs.push_back(site.path(path));
    std::vector<std::string> command = {site.program("atoll-trainer"),
                                        "tokenize",
                                        "--tokenizer",
                                        site.model_directory(prepare.tokenizer_digest),
                                        "--input",
                                        join(inputs, ","),
                                        chat ? "--chat-template" : "--template",
                                        chat ? std::string(*chat) : prepare.prompt_template,
                                        "--out",
                                        "out/" + split,
                                        "--seq-len",
                                        std::to_string(prepare.seq_len),
                                        "--batching",
                                        prepare.batching};
    if (prepare.input_format != "auto") command.insert(command.end(), {"--input-format", prepare.input_format});
    if (!has_own)
        command.insert(command.end(),
                       {"--split", split, "--validation-percent", std::to_string(prepare.validation_percent)});
    return command;
}

// Appends the flags that name a version: a model, or an adapter of `model`.
void add_version(std::vector<std::string>& command, const Site& site, const std::string& version,
                 const std::string& model) {
    command.insert(command.end(), {"--model", site.model_directory(model.empty() ? version : model)});
    if (!model.empty()) command.insert(command.end(), {"--adapter", site.model_directory(version)});
}

std::vector<std::string> train_command(const Site& site, const TrainParams& train) {
    std::vector<std::string> command = {site.program("atoll-trainer"), "train"};
    add_version(command, site, train.base, train.model);
    command.insert(command.end(),
                   {"--data", site.path(train.path) + "/train", "--out", "out", "--config", "run.json", "--resume"});
    if (validates(train.training)) command.insert(command.end(), {"--val-data", site.path(train.path) + "/validation"});
    return command;
}

bool keeps_state(const TrainParams& train) {
    return train.training.value("keep_optimizer", false) || writes_change(train.training) || train.control_variate > 0;
}

// What the site kept is taken if it is that round's of this job, whole, and fits. Else the trainer warns and starts
// without it: a lost optimizer costs some steps, a failed attempt the round.
void set_kept_state(json::Json& settings, const KeptState& kept, const std::string& job) {
    const auto name = [&](std::int64_t round) { return "round " + std::to_string(round) + " of job " + job; };
    for (const auto& [is_kept, what] : {std::pair{settings.value("keep_optimizer", false), std::string("optimizer")},
                                        {writes_change(settings), std::string("rounding_error")},
                                        {settings.contains("control_variate"), std::string("control_variate")}}) {
        if (!is_kept) continue;
        settings[what + "_name"] = name(kept.round);
        if (kept.from == 0) continue;
        settings[what + "_from"] = kept.place(kept.from);
        settings[what + "_if_named"] = name(kept.from);
    }
}

std::vector<std::string> eval_command(const Site& site, const EvaluateParams& evaluate, const std::string& version) {
    std::vector<std::string> command = {site.program("atoll-trainer"), "eval"};
    add_version(command, site, version, evaluate.model);
    command.insert(command.end(), {"--data", site.path(evaluate.path) + "/validation", "--loss-tokens-min",
                                   std::to_string(kLossTokensMin)});
    if (!evaluate.quantize.empty()) command.insert(command.end(), {"--quantize", evaluate.quantize});
    if (evaluate.samples_max > 0)
        command.insert(command.end(), {"--val-samples", std::to_string(evaluate.samples_max)});
    return command;
}

}  // namespace

BatchJobRef batch_job_ref(const Task& task, const Site& site) {
    return {batch_job_name(task), site.task_directory(task.id, task.attempt->number)};
}

Result<BatchJob> describe_batch_job(const Task& task, const Site& site) {
    const BatchSpec& batch = site.facility().batch;
    BatchJob job{batch_job_ref(task, site), site.facility().environment};
    job.launcher = site.facility().launcher;
    job.image_runner = render_image_runner(site.facility());
    job.image_check = render_image_check(site.facility());
    std::visit(Overloaded{[&](const TrainParams& train) {
                              job.commands = {train_command(site, train)};
                              // Login nodes end what computes for minutes.
                              job.seal = {site.program("atoll"), "seal", "--dir", "out", "--seal", site::kSeal};
                              if (train.state_round > 0)
                                  job.environment["ATOLL_STATE_ROUND"] = std::to_string(train.state_round);
                              job.resources = train.resources;
                              // A node's own /tmp is often its memory, and nobody looks for a state there.
                              job.environment["ATOLL_STATE_BESIDE_OUT"] = "1";
                              job.environment["ATOLL_RANKS"] = std::to_string(train.resources.ranks());
                              job.run_json =
                                  limit_time(save_by_time(train.training), batch_time_s(batch, train.resources));
                              job.run_json["loss_tokens_min"] = kLossTokensMin;
                              if (train.counts_tokens) job.run_json["token_counts"] = true;
                              if (train.control_variate > 0) job.run_json["control_variate"] = train.control_variate;
                              if (writes_change(train.training) || train.control_variate > 0)
                                  job.run_json["update_base"] = train.base;
                              if (keeps_state(train)) {
                                  job.kept_state = {site.path("kept/" + task.job), task.round, train.state_round};
                                  set_kept_state(job.run_json, *job.kept_state, task.job);
                              }
                              for (std::int64_t earlier = task.attempt->number - 1; earlier > 0; --earlier)
                                  job.earlier_attempts.push_back(site.task_directory(task.id, earlier));
                          },
                          [&](const EvaluateParams& evaluate) {
                              job.resources = site.facility().evaluation;
                              job.independent = evaluate.models.size() > 1;
                              for (const auto& model : evaluate.models)
                                  job.commands.push_back(eval_command(site, evaluate, model.digest));
                          },
                          [&](const PrepareParams& prepare) {
                              job.resources = site.facility().preparation;
                              job.commands = {{"mkdir", "-p", "out"}};
                              for (const std::string split : {"train", "validation"})
                                  job.commands.push_back(tokenize_command(site, prepare, split));
                              // Kept here, as out/ moves to its final place.
                              for (const std::string split : {"train", "validation"})
                                  job.commands.push_back({"cp", "out/" + split + "/data.json", split + ".data.json"});
                          },
                          [](const CleanParams&) { check(false, "cleaning up submits no batch job"); }},
               task.params);
    ATOLL_RETURN_IF_ERROR(check_resources(job.resources, site.facility(), "resources"));
    return job;
}

std::vector<std::string> check_input_command(const PrepareParams& prepare, const Site& site) {
    PrepareParams all = prepare;
    if (!prepare.validation_input.empty()) all.input += "," + prepare.validation_input;
    std::vector<std::string> command = tokenize_command(site, all, "train");
    command.emplace_back("--check");
    return command;
}

Result<std::string> render_batch_script(const Task& task, const Site& site) {
    ATOLL_TRY(const BatchJob job, describe_batch_job(task, site));
    return render_job_script(job, *make_batch_system(site.facility()));
}

}  // namespace atl::dispatch
