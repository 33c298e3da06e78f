#include <cmath>

#include "shared/run_settings/other_config_reader.h"

// DeepSpeed's JSON, and the deepspeed_config of an accelerate file.
namespace atl::run_settings {
namespace {

using json::Json;

// Of "fp16" and "bf16": whether it is on, which sets the precision.
bool translate_precision(OtherReader& reader, const char* key, const char* word) {
    const Json object = reader.take_object(key, "precision");
    if (object.is_null()) return false;
    OtherReader own(object, reader.path() + key + ".", reader.into());
    const Json enabled = own.take("enabled", "precision");
    const bool is_on = enabled == true;
    if (!enabled.is_null() && !enabled.is_boolean()) own.note_not_understood("enabled");
    if (is_on) own.set("precision", word, "enabled");
    if (is_on && std::string_view(word) == "fp16") {
        const Json scale = own.take_number("loss_scale");
        if (!scale.is_null() && scale != 0) own.note("loss_scale", "has no counterpart: the loss scale adapts itself");
        const Json power = own.take_number("initial_scale_power", "loss_scale");
        if (!power.is_null()) own.set("loss_scale", std::exp2(power.get<double>()), "initial_scale_power");
    }
    if (is_on || enabled.is_null())
        own.finish({{"loss_scale", 0},
                    {"loss_scale_window", 1000},
                    {"hysteresis", 2},
                    {"min_loss_scale", 1},
                    {"initial_scale_power", 16}});
    return is_on;
}

void translate_adamw(OtherReader& params) {
    params.rename("eps", "eps");
    const Json betas = params.take("betas", "beta1 and beta2");
    if (betas.is_array() && betas.size() == 2) {
        params.set("beta1", betas[0], "betas");
        params.set("beta2", betas[1], "betas");
    } else if (!betas.is_null()) {
        params.note("betas", "is no list of two numbers");
    }
    if (params.has("adam_w_mode") && params.take("adam_w_mode") != true)
        params.note("adam_w_mode", "has no counterpart: weight decay is decoupled here, as in AdamW");
}

void translate_optimizer(OtherReader& reader) {
    const Json object = reader.take_object("optimizer", "optimizer");
    if (object.is_null()) return;
    OtherReader own(object, reader.path() + "optimizer.", reader.into());
    const Json type = own.take("type", "optimizer");
    const bool is_adam = type == "AdamW" || type == "Adam" || type == "FusedAdam" || type == "DeepSpeedCPUAdam";
    const bool is_known = is_adam || type == "SGD";
    if (is_known) own.set("optimizer", is_adam ? "adamw" : "sgd", "type");
    if (!is_known && !type.is_null()) own.note("type", "has no counterpart: adamw, sgd and muon are built");
    const Json given = own.take_object("params");
    own.finish(Json::object());
    const Json params_object = given.is_null() ? Json::object() : given;
    OtherReader params(params_object, own.path() + "params.", reader.into());
    const bool says_rate = params.has("lr");
    params.rename("lr", "lr");
    if (is_adam && !says_rate) params.set("lr", 1e-3, "lr");  // DeepSpeed's default
    if (is_adam) translate_adamw(params);
    if (type == "SGD") params.rename("momentum", "momentum");
    const bool says_decay = params.has("weight_decay");
    params.rename("weight_decay", "weight_decay");
    if (is_known && !says_decay) params.set("weight_decay", 0, "weight_decay");  // DeepSpeed's default
    params.finish({{"torch_adam", false}, {"bias_correction", true}});
}

void translate_scheduler(OtherReader& reader) {
    const Json object = reader.take_object("scheduler", "schedule");
    if (object.is_null()) return;
    OtherReader own(object, reader.path() + "scheduler.", reader.into());
    const Json type = own.take("type", "schedule");
    const Json given = own.take_object("params");
    own.finish(Json::object());
    const Json params_object = given.is_null() ? Json::object() : given;
    if (type == "WarmupLR") own.set("schedule", "constant", "type");
    if (type == "WarmupDecayLR") own.set("schedule", "linear", "type");
    if (type == "WarmupCosineLR") own.set("schedule", "cosine", "type");
    if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR") {
        if (!type.is_null()) own.note("type", "has no counterpart: constant, linear and cosine are built");
        if (!own.has("type")) own.note("type", "is not given: the scheduler is left out");
        return;
    }
    OtherReader params(params_object, own.path() + "params.", reader.into());
    const bool has_own_rate = type != "WarmupCosineLR";
    if (has_own_rate && !params.has("warmup_max_lr")) {
        params.set("lr", 1e-3, "warmup_max_lr");
        params.note("warmup_max_lr", "is not given, so that DeepSpeed trains at 1e-3 whatever the optimizer's lr is");
    }
    params.rename("warmup_max_lr", "lr");
    params.rename("total_num_steps", "steps");
    const bool says_steps = params.has("warmup_num_steps");
    params.rename("warmup_num_steps", "warmup_steps");
    if (!says_steps) params.set("warmup_steps", 1000, "warmup_num_steps");  // DeepSpeed's default
    if (params.take("warmup_type") != "linear")
        params.note("warmup_type", "is not linear (DeepSpeed's default is \"log\"); the warm-up here is");
    if (const Json least = params.take_number("warmup_min_lr"); !least.is_null() && least != 0)
        params.note("warmup_min_lr", "has no counterpart: the warm-up begins at 0");
    params.finish({{"last_batch_iteration", -1}});
}

// Where an optimizer's state or weights lie: {"device": "cpu"}.
void translate_offload(OtherReader& zero, const char* key, const char* ours) {
    const Json object = zero.take_object(key, ours);
    if (object.is_null()) return;
    OtherReader own(object, zero.path() + key + ".", zero.into());
    const Json device = own.take("device", ours);
    const bool is_nvme = device == "nvme";
    if (is_nvme && std::string_view(ours) == "offload_params") {
        own.note("device", "nvme is not built for weights: offload_params cpu is");
    } else if (!device.is_null()) {
        own.set(ours, device, "device");
    }
    const Json path = own.take("nvme_path");
    if (is_nvme && path.is_string() && std::string_view(ours) == "offload_optimizer") {
        own.set("offload_dir", path, "nvme_path");
    } else if (path.is_string()) {
        own.note("nvme_path", "means nothing here: only an optimizer's state is kept on nvme");
    } else if (!path.is_null()) {
        own.note_not_understood("nvme_path");
    }
    own.note_each({"pin_memory", "buffer_count", "buffer_size", "fast_init", "max_in_cpu", "pipeline_read",
                   "pipeline_write", "pipeline", "ratio"},
                  kMovesData);
    own.finish(Json::object());
}

void translate_zero(OtherReader& reader) {
    const Json object = reader.take_object("zero_optimization", "sharding");
    if (object.is_null()) return;
    OtherReader zero(object, reader.path() + "zero_optimization.", reader.into());
    set_zero_stage(zero, "stage");
    translate_offload(zero, "offload_optimizer", "offload_optimizer");
    translate_offload(zero, "offload_param", "offload_params");
    if (zero.is_true("cpu_offload")) zero.set("offload_optimizer", "cpu", "cpu_offload");
    if (const Json group = zero.take_number("zero_hpz_partition_size"); !group.is_null() && group != 1)
        zero.note("zero_hpz_partition_size", "has no counterpart; sharding hybrid_shard with shard_group comes near");
    zero.note_each(
        {"overlap_comm", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_bucket_size",
         "allgather_partitions", "sub_group_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
         "stage3_max_live_parameters", "stage3_max_reuse_distance", "round_robin_gradients",
         "use_multi_rank_bucket_allreduce", "memory_efficient_linear", "stage3_module_granularity_threshold"},
        kMovesData);
    zero.note_each({"stage3_gather_16bit_weights_on_model_save"},
                   "has no counterpart: the model is always written whole");
    zero.finish({{"elastic_checkpoint", false}});
}

void translate_clipping(OtherReader& reader) {
    if (reader.has("gradient_clipping")) return reader.rename("gradient_clipping", "max_grad_norm");
    reader.take("gradient_clipping");
    reader.set("max_grad_norm", 0, "gradient_clipping");
    reader.note("gradient_clipping", "is not set, so DeepSpeed does not clip: max_grad_norm is 0");
}

}  // namespace

void set_zero_stage(OtherReader& reader, const char* key) {
    const Json stage = reader.take(key, "sharding");
    constexpr const char* kStages[] = {"none", "shard_optimizer", "shard_grad_op", "full_shard"};
    if (stage.is_number_integer() && stage >= 0 && stage <= 3) {
        reader.set("sharding", kStages[stage.get<std::size_t>()], key);
    } else if (!stage.is_null()) {
        reader.note(key, "is none of DeepSpeed's stages, 0 to 3");
    }
}

void translate_deepspeed(const Json& object, const std::string& path, Translation& into) {
    OtherReader reader(object, path, into);
    reader.rename("train_batch_size", "global_batch_size");
    reader.rename("train_micro_batch_size_per_gpu", "batch_size");
    reader.rename("gradient_accumulation_steps", "grad_accum");
    if (path.empty()) {
        translate_clipping(reader);
    } else {  // transformers says the norm itself
        reader.rename("gradient_clipping", "max_grad_norm");
    }
    translate_precision(reader, "fp16", "fp16");
    translate_precision(reader, "bf16", "bf16");
    translate_precision(reader, "bfloat16", "bf16");
    translate_optimizer(reader);
    translate_scheduler(reader);
    translate_zero(reader);
    reader.note_each({"steps_per_print", "wall_clock_breakdown", "tensorboard", "wandb", "csv_monitor",
                      "flops_profiler", "comms_logger", "dump_state", "memory_breakdown"},
                     "has no counterpart: every step is a line of JSON on standard output");
    if (const Json own = reader.take("activation_checkpointing"); !own.is_null())
        reader.note("activation_checkpointing",
                    "says how, not whether: activation_checkpointing full computes all of a layer again");
    reader.finish({{"prescale_gradients", false}, {"gradient_predivide_factor", 1.0}});
}

}  // namespace atl::run_settings
