#include <algorithm>
#include <cmath>
#include <sstream>

#include "shared/run_settings/other_config_reader.h"
#include "shared/run_settings/run_settings.h"

// transformers' TrainingArguments as JSON. A key that is not there has transformers' default, which is said where ours
// is another.
namespace atl::run_settings {
namespace {

using json::Json;

// What TrainingArguments writes of itself where nobody said anything, and what says nothing of a training's result.
const Json& argument_defaults() {
    static const Json defaults = {{"average_tokens_across_devices", true},
                                  {"logging_strategy", "steps"},
                                  {"logging_steps", 500},
                                  {"log_on_each_node", true},
                                  {"logging_nan_inf_filter", true},
                                  {"include_num_input_tokens_seen", "no"},
                                  {"log_level", "passive"},
                                  {"log_level_replica", "warning"},
                                  {"project", "huggingface"},
                                  {"eval_delay", 0},
                                  {"per_device_eval_batch_size", 8},
                                  {"eval_do_concat_batches", true},
                                  {"hub_token", "<HUB_TOKEN>"},
                                  {"hub_strategy", "every_save"},
                                  {"dataloader_num_workers", 0},
                                  {"dataloader_in_order", true},
                                  {"dataloader_pin_memory", true},
                                  {"remove_unused_columns", true},
                                  {"train_sampling_strategy", "random"},
                                  {"length_column_name", "length"},
                                  {"skip_memory_metrics", true},
                                  {"local_rank", -1},
                                  {"use_cpu", true},
                                  {"save_safetensors", true},
                                  {"label_smoothing_factor", 0.0},
                                  {"accelerator_config",
                                   {{"split_batches", false},
                                    {"dispatch_batches", nullptr},
                                    {"even_batches", true},
                                    {"use_seedable_sampler", true},
                                    {"non_blocking", false},
                                    {"gradient_accumulation_kwargs", nullptr}}}};
    return defaults;
}

Json value_or(OtherReader& reader, const char* key, const char* ours, const Json& fallback) {
    const bool is_given = reader.has(key);
    const Json value = reader.take(key, ours);
    return is_given ? value : fallback;
}

void set_or(OtherReader& reader, const char* key, const char* ours, const Json& fallback) {
    if (const Json value = value_or(reader, key, ours, fallback); !value.is_null()) reader.set(ours, value, key);
}

// As an integer where it is one that we would take; else as it is, and so refused.
Json whole_number(double value) {
    constexpr double kWholeMax = 1e15;
    if (std::floor(value) == value && std::abs(value) <= kWholeMax) return static_cast<std::int64_t>(value);
    return value;
}

// The number of steps, where it is said; 0: by epochs.
std::int64_t translate_length(OtherReader& reader) {
    const Json steps = reader.take("max_steps", "steps");
    const Json epochs = value_or(reader, "num_train_epochs", "epochs", 3.0);
    if (steps.is_number_integer() && steps > 0) {
        reader.set("steps", steps, "max_steps");
        return steps.get<std::int64_t>();
    }
    if (!steps.is_null() && !steps.is_number_integer()) reader.set("steps", steps, "max_steps");  // is refused
    const bool is_whole = epochs.is_number() && epochs.get<double>() >= 1 && epochs.get<double>() <= 1e6 &&
                          std::floor(epochs.get<double>()) == epochs.get<double>();
    if (is_whole) reader.set("epochs", static_cast<std::int64_t>(epochs.get<double>()), "num_train_epochs");
    if (!is_whole && !epochs.is_null())
        reader.note("num_train_epochs", "is no whole number, as epochs must be: set steps instead");
    return 0;
}

void translate_warmup(OtherReader& reader, std::int64_t steps, bool is_constant) {
    const Json count = reader.take("warmup_steps", "warmup_steps");
    const Json part = reader.take("warmup_ratio", "warmup_steps");
    const bool is_part_of_all = count.is_number_float() && count > 0 && count < 1;
    const Json ratio = is_part_of_all ? count : part;
    if (!count.is_null() && !count.is_number()) return reader.set("warmup_steps", count, "warmup_steps");  // is refused
    const char* const key = is_part_of_all ? "warmup_steps" : "warmup_ratio";
    const bool is_count = count.is_number() && count >= 1;
    if (!is_count && !(ratio.is_number() && ratio > 0)) return;
    if (is_constant)
        return reader.note(is_count ? "warmup_steps" : key, "means nothing with lr_scheduler_type constant");
    if (is_count) return reader.set("warmup_steps", whole_number(count.get<double>()), "warmup_steps");
    if (steps == 0)
        return reader.note(key, "is a part of all steps: set warmup_steps to that many, and warmup_from_zero to on");
    if (ratio > 1) return reader.note(key, "is more than all steps: set warmup_steps");
    reader.set("warmup_steps", whole_number(std::ceil(ratio.get<double>() * static_cast<double>(steps))), key);
}

void translate_schedule(OtherReader& reader, std::int64_t steps) {
    const Json type = value_or(reader, "lr_scheduler_type", "schedule", "linear");
    const bool is_plain = type == "linear" || type == "cosine" || type == "constant";
    if (is_plain) reader.set("schedule", type, "lr_scheduler_type");
    if (type == "constant_with_warmup") reader.set("schedule", "constant", "lr_scheduler_type");
    if (!is_plain && type != "constant_with_warmup" && !type.is_null())
        reader.note("lr_scheduler_type", "has no counterpart: constant, linear and cosine are built");
    translate_warmup(reader, steps, type == "constant");
}

void translate_optim(OtherReader& reader) {
    const Json name = value_or(reader, "optim", "optimizer", "adamw_torch");
    const std::string word = name.is_string() ? name.get<std::string>() : "";
    if (word == "adamw_torch" || word == "adamw_torch_fused" || word == "adamw_hf" || word == "adamw_apex_fused") {
        reader.set("optimizer", "adamw", "optim");
    } else if (word == "sgd") {
        reader.set("optimizer", "sgd", "optim");
    } else if (!name.is_null()) {
        reader.note("optim", "has no counterpart: adamw, sgd and muon are built");
    }
    set_or(reader, "learning_rate", "lr", 5e-5);
    const Json decay = value_or(reader, "weight_decay", "weight_decay", 0.0);
    if (!decay.is_null()) reader.set("weight_decay", decay, "weight_decay");
    // transformers decays no norm and no bias.
    if (decay.is_number() && decay != 0) reader.set("no_decay_norms", true, "weight_decay");
    if (word != "sgd") {
        reader.rename("adam_beta1", "beta1");
        reader.rename("adam_beta2", "beta2");
        reader.rename("adam_epsilon", "eps");
    }
    reader.rename("max_grad_norm", "max_grad_norm");
}

// "full_shard auto_wrap offload", or a list of these words.
void translate_fsdp_words(OtherReader& reader) {
    const Json given = reader.take("fsdp", "sharding");
    if (given == true) return reader.set("sharding", "full_shard", "fsdp");
    const bool is_all_words =
        std::ranges::all_of(given.is_array() ? given : Json::array(), [](const Json& one) { return one.is_string(); });
    if (given.is_number() || given.is_object() || !is_all_words) reader.note_not_understood("fsdp");
    std::string words = given.is_string() ? given.get<std::string>() : "";
    if (given.is_array())
        for (const Json& one : given)
            if (one.is_string()) words += " " + one.get<std::string>();
    std::istringstream stream(words);
    for (std::string word; stream >> word;) {
        const Json ours = sharding_of_fsdp(Json(word));
        if (!ours.is_null()) {
            reader.set("sharding", ours, "fsdp");
        } else if (word == "offload") {
            reader.set("offload_params", "cpu", "fsdp");
        } else if (word != "auto_wrap") {
            reader.note("fsdp", word + " has no counterpart");
        }
    }
}

void translate_ranks(OtherReader& reader) {
    translate_fsdp_words(reader);
    if (const Json config = reader.take("fsdp_config"); config.is_object()) {
        OtherReader own(config, "fsdp_config.", reader.into());
        if (own.is_true("activation_checkpointing"))
            own.set("activation_checkpointing", "full", "activation_checkpointing");
        own.finish({{"min_num_params", 0}, {"xla", false}});
    } else if (config.is_string()) {
        reader.note("fsdp_config", "is a file of its own, which is not read");
    } else if (!config.is_null()) {
        reader.note_not_understood("fsdp_config");
    }
    const Json deepspeed = reader.take("deepspeed", "sharding");
    if (deepspeed.is_object()) {
        reader.into().fills_auto = true;  // transformers does, from these arguments
        translate_deepspeed(deepspeed, "deepspeed.", reader.into());
        reader.into().fills_auto = false;
    }
    if (deepspeed.is_string()) reader.note("deepspeed", "is a file of its own: translate that, too");
    if (!deepspeed.is_null() && !deepspeed.is_object() && !deepspeed.is_string())
        reader.note_not_understood("deepspeed");
    const bool is_true = reader.is_true("gradient_checkpointing");
    if (reader.is_true("activation_checkpointing") || is_true)
        reader.set("activation_checkpointing", "full", "gradient_checkpointing");
    if (reader.is_true("full_determinism")) reader.set("deterministic", true, "full_determinism");
    if (const Json seconds = reader.take_number("ddp_timeout"); !seconds.is_null() && seconds != 1800)
        reader.set("collective_timeout", seconds, "ddp_timeout");
}

// `when` is eval_strategy or save_strategy, `every` the number of steps.
void translate_interval(OtherReader& reader, const char* when, const char* every, const char* ours) {
    const Json strategy = reader.take(when, ours), steps = reader.take_number(every, ours);
    const bool is_steps = strategy == "steps" || (strategy.is_null() && std::string_view(when) == "save_strategy");
    if (is_steps && steps.is_number() && steps >= 1) return reader.set(ours, whole_number(steps.get<double>()), every);
    if (is_steps && steps.is_number()) return reader.note(every, "is a part of all steps: set " + std::string(ours));
    if (strategy == "epoch") return reader.set(ours, std::string(kEachEpoch), when);
    if (!is_steps && !strategy.is_null() && strategy != "no" && strategy != false)
        reader.note(when, "has no counterpart: set " + std::string(ours) + " to a number of steps or to epoch");
}

void translate_best(OtherReader& reader) {
    const Json metric = reader.take("metric_for_best_model"), is_greater_better = reader.take("greater_is_better");
    if (!reader.is_true("load_best_model_at_end")) return;
    reader.set("save_best", true, "load_best_model_at_end");
    reader.note("load_best_model_at_end", "the best model is in OUT.best, the last one in OUT");
    const bool is_loss = metric.is_null() || metric == "loss" || metric == "eval_loss";
    if (!is_loss || is_greater_better == true)
        reader.note("metric_for_best_model", "has no counterpart: the model of the lowest validation loss is kept");
}

void translate_precisions(OtherReader& reader) {
    const bool is_bf16 = reader.is_true("bf16"), is_fp16 = reader.is_true("fp16");
    if (is_bf16 || is_fp16) reader.set("precision", is_bf16 ? "bf16" : "fp16", is_bf16 ? "bf16" : "fp16");
}

}  // namespace

void translate_training_arguments(const Json& object, Translation& into) {
    OtherReader reader(object, "", into);
    reader.rename("output_dir", "out");
    if (reader.is_true("overwrite_output_dir")) reader.set("overwrite", true, "overwrite_output_dir");
    set_or(reader, "per_device_train_batch_size", "batch_size", 8);
    reader.rename("gradient_accumulation_steps", "grad_accum");
    const std::int64_t steps = translate_length(reader);
    translate_optim(reader);
    translate_schedule(reader, steps);
    translate_precisions(reader);
    set_or(reader, "seed", "seed", 42);
    translate_ranks(reader);
    reader.take("evaluation_strategy");
    translate_interval(reader, reader.has("evaluation_strategy") ? "evaluation_strategy" : "eval_strategy",
                       "eval_steps", "eval_every");
    reader.take("eval_strategy");
    translate_interval(reader, "save_strategy", "save_steps", "save_every");
    translate_best(reader);
    if (!reader.take("resume_from_checkpoint").is_null())
        reader.note("resume_from_checkpoint", "has no counterpart: --resume goes on from the state beside --out");
    for (const char* key : {"do_train", "do_eval", "do_predict", "report_to", "run_name", "logging_dir",
                            "logging_steps", "logging_strategy", "disable_tqdm", "logging_first_step"})
        if (reader.has(key) && argument_defaults().value(key, Json()) != object.at(key)) {
            const Json value = reader.take(key);
            if (value != false && value != true && !(value.is_array() && value.empty()))
                reader.note(key, "has no counterpart: every step is a line of JSON on standard output");
        }
    reader.finish(argument_defaults());
}

}  // namespace atl::run_settings
