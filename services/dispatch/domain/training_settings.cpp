#include "services/dispatch/domain/training_settings.h"

#include <algorithm>
#include <string_view>

#include "services/dispatch/domain/resources.h"
#include "services/dispatch/domain/site_output.h"
#include "shared/run_settings/other_words.h"

namespace atl::dispatch {
namespace {

using json::Json;
using run_settings::RunConfig;

// What means nothing where no adapters are trained.
Status check_adapter_settings(const RunConfig& config) {
    if (config.lora_rank > 0) return {};
    if (config.quantize != run_settings::Quantization::kNone)
        return invalid_argument("quantize", "freezes the model: only adapters can be trained on it; give lora_rank");
    for (const char* flag : {"lora-alpha", "lora-dropout", "lora-targets", "lora-freeze-a"})
        if (config.given.contains(flag))
            return run_settings::with_keys(
                invalid_argument("--" + std::string(flag), "means nothing without --lora-rank"));
    return {};
}

// Why a key of the trainer's is not a job's; empty: it is.
std::string_view not_of_a_job(std::string_view key) {
    for (const std::string_view own :
         {"model", "data", "out", "val_data", "resume", "overwrite", "adapter", "optimizer_name", "optimizer_from",
          "optimizer_if_named", "update_base", "rounding_error_name", "rounding_error_from", "rounding_error_if_named",
          "control_variate_name", "control_variate_from", "control_variate_if_named"})
        if (key == own) return "is set by dispatch, not by a job";
    if (key == "loss_tokens_min") return "is set by dispatch, so that no loss spells out a site's text";
    if (key == "token_counts") return "is set by dispatch, where strategy.row_weights needs it";
    if (key == "control_variate") return "is set by dispatch: give strategy.control_variate";
    if (key == "save_best") return "keeps a model that no round hands in: leave it out of a job";
    if (key == "offload_dir") return "is the site's: set TMPDIR in the facility's environment";
    return {};
}

// The same of a word that is the trainer's or another program's.
std::string_view word_not_of_a_job(const std::string& word) {
    const run_settings::OtherWord* other = run_settings::find_other_word(word);
    if (other == nullptr) return not_of_a_job(word);
    if (run_settings::is_of_launcher(*other))
        return "is the participant's: its resources (nodes, tasks_per_node) or ranks say how many ranks train";
    const run_settings::Option* option = run_settings::find_option(other->option, run_settings::kTrain);
    return option == nullptr ? std::string_view() : not_of_a_job(option->key());
}

}  // namespace

Result<RunConfig> parse_training_settings(const Json& settings, const std::string& path) {
    RunConfig config;
    if (settings.is_null()) return config;
    if (!settings.is_object()) return invalid_argument(path, "must be an object");
    for (const auto& [key, value] : settings.items())
        if (const auto why = word_not_of_a_job(key); !why.empty())
            return invalid_argument(path + "." + key, std::string(why));
    const Status assigned = run_settings::assign_json(config, settings, run_settings::kTrain);
    if (!assigned.ok()) return invalid_argument(path + "." + assigned.error().field, assigned.error().message);
    if (config.val_samples % kLossTokensMin != 0)  // losses of sets that differ by a row would tell that row's
        return invalid_argument(path + ".val_samples", "must be a multiple of " + std::to_string(kLossTokensMin));
    return config;
}

bool validates(const Json& settings) {
    return settings.is_object() && settings.contains("eval_every");
}

Status check_own_settings(const Json& overrides, const std::string& path) {
    if (!overrides.is_object()) return {};
    for (const auto& [key, value] : overrides.items())
        if (key == "quantize" || key.starts_with("lora_"))
            return invalid_argument(path + "." + key,
                                    "is the job's to say, in training: adapters of one job are alike, or their mean "
                                    "would be none");
    return {};
}

Status check_training_together(const Json& settings, const Json& overrides, std::int64_t ranks,
                               const std::string& path) {
    ATOLL_TRY(RunConfig config, parse_training_settings(settings, "training"));
    Status checked = check_adapter_settings(config);
    if (validates(settings))
        config.val_data = "validation";  // as its batch job will
    else if (checked.ok() && config.given.contains("val-samples"))
        checked = invalid_argument("val_samples",
                                   "means nothing without eval_every, which has each training of a round validate; "
                                   "evaluation.val_samples is of the evaluations between rounds");
    if (checked.ok())
        checked = config.steps == 0 && config.epochs == 0
                      ? invalid_argument("steps", "say how long each round trains: steps or epochs, at least 1")
                      : run_settings::check_training(config, static_cast<int>(ranks));
    if (checked.ok()) return {};
    Error error = run_settings::with_keys(checked.error());
    const bool is_own = overrides.is_object() && overrides.contains(error.field);
    error.field = (is_own ? path : "training") + "." + error.field;
    return error;
}

Json limit_time(Json settings, std::int64_t time_s) {
    if (time_s == 0) return settings;
    const auto limit = static_cast<double>(time_s - notice_s(time_s));
    const double own = settings.value("time_limit", 0.0);
    settings["time_limit"] = own > 0 ? std::min(own, limit) : limit;
    return settings;
}

Json save_by_time(Json settings) {
    if (!settings.contains("save_every") && !settings.contains("save_interval"))
        settings["save_interval"] = kSaveInterval_s;
    return settings;
}

Json merge_training_settings(Json base, const Json& overrides) {
    if (base.is_null()) base = Json::object();
    if (overrides.is_object()) base.update(overrides);
    return base;
}

bool writes_change(const json::Json& training) {
    return training.value("update_format", "model") != "model";
}

}  // namespace atl::dispatch
