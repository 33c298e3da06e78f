#include "shared/run_settings/other_config_reader.h"

// The YAML that `accelerate config` writes.
namespace atl::run_settings {
namespace {

using json::Json;

const char* const kOfLauncher = "is the launcher's: start the ranks with mpirun -n or srun";

void translate_mixed_precision(OtherReader& reader) {
    const Json precision = reader.take("mixed_precision", "precision");
    if (precision == "bf16" || precision == "fp16") {
        reader.set("precision", precision, "mixed_precision");
    } else if (precision == "no" || precision == false) {
        reader.set("precision", "fp32", "mixed_precision");
    } else if (precision == "fp8") {
        reader.note("mixed_precision", "fp8 is not built: bf16 and fp16 are");
    } else if (!precision.is_null()) {
        reader.note_not_understood("mixed_precision");
    }
}

// FSDP 1 names a strategy; FSDP 2 says whether weights are gathered again for the backward pass.
void translate_strategy(OtherReader& fsdp) {
    const Json strategy = fsdp.take("fsdp_sharding_strategy", "sharding");
    const Json reshards = fsdp.take("fsdp_reshard_after_forward", "sharding");
    if (!strategy.is_null()) {
        const Json ours = sharding_of_fsdp(strategy);
        if (!reshards.is_null()) fsdp.note("fsdp_reshard_after_forward", "means nothing beside fsdp_sharding_strategy");
        if (ours.is_null()) return fsdp.note("fsdp_sharding_strategy", "is none that is known");
        return fsdp.set("sharding", ours, "fsdp_sharding_strategy");
    }
    const Json named = sharding_of_fsdp(reshards);
    const bool is_default = reshards == true || !fsdp.has("fsdp_reshard_after_forward");
    const Json ours = reshards == false ? Json("shard_grad_op") : is_default ? Json("full_shard") : named;
    if (!ours.is_null()) return fsdp.set("sharding", ours, "fsdp_reshard_after_forward");
    if (!reshards.is_null()) fsdp.note_not_understood("fsdp_reshard_after_forward");
}

void translate_fsdp(OtherReader& reader) {
    const Json given = reader.take_object("fsdp_config", "sharding");
    const Json object = given.is_null() ? Json::object() : given;
    OtherReader fsdp(object, "fsdp_config.", reader.into());
    translate_strategy(fsdp);
    if (fsdp.is_true("fsdp_offload_params")) fsdp.set("offload_params", "cpu", "fsdp_offload_params");
    if (fsdp.is_true("fsdp_activation_checkpointing"))
        fsdp.set("activation_checkpointing", "full", "fsdp_activation_checkpointing");
    fsdp.note_each({"fsdp_auto_wrap_policy", "fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params"},
                   "has no counterpart: each layer is always a unit of its own");
    fsdp.note_each({"fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_backward_prefetch_policy",
                    "fsdp_use_orig_params", "fsdp_limit_all_gathers"},
                   kMovesData);
    if (const Json type = fsdp.take("fsdp_state_dict_type"); !type.is_null())
        fsdp.note("fsdp_state_dict_type", "has no counterpart: the model is written whole, a state in parts");
    fsdp.finish({{"fsdp_version", 1}, {"fsdp_sync_module_states", true}, {"fsdp_cpu_ram_efficient_loading", true}});
}

void translate_zero_plugin(OtherReader& reader) {
    const Json object = reader.take_object("deepspeed_config", "sharding");
    if (object.is_null()) return;
    OtherReader own(object, "deepspeed_config.", reader.into());
    own.rename("gradient_accumulation_steps", "grad_accum");
    own.rename("gradient_clipping", "max_grad_norm");
    if (const Json file = own.take("deepspeed_config_file"); !file.is_null())
        own.note("deepspeed_config_file", "is a file of its own: translate that, too");
    set_zero_stage(own, "zero_stage");
    own.rename("offload_optimizer_device", "offload_optimizer");
    if (const Json device = own.take("offload_param_device", "offload_params"); device == "nvme") {
        own.note("offload_param_device", "nvme is not built for weights: offload_params cpu is");
    } else if (!device.is_null()) {
        own.set("offload_params", device, "offload_param_device");
    }
    const Json path = own.take("offload_optimizer_nvme_path");
    if (path.is_string() && path != "none") own.set("offload_dir", path, "offload_optimizer_nvme_path");
    if (!path.is_null() && !path.is_string()) own.note_not_understood("offload_optimizer_nvme_path");
    own.note_each({"zero3_init_flag", "zero3_save_16bit_model"},
                  "has no counterpart: weights are read in parts, and the model is always written whole");
    own.finish({{"offload_param_nvme_path", "none"}, {"deepspeed_multinode_launcher", "standard"}});
}

}  // namespace

void translate_accelerate(const Json& object, Translation& into) {
    OtherReader reader(object, "", into);
    const Json type = reader.take("distributed_type");
    translate_mixed_precision(reader);
    reader.rename("gradient_accumulation_steps", "grad_accum");
    if (type == "FSDP") {
        translate_fsdp(reader);
    } else if (type == "DEEPSPEED") {
        translate_zero_plugin(reader);
    } else if (type != "NO" && type != false && type != "MULTI_GPU" && type != "MULTI_CPU" && !type.is_null()) {
        reader.note("distributed_type", "has no counterpart; see sharding");
    }
    if (reader.is_true("use_cpu")) reader.set("device", "cpu", "use_cpu");
    reader.note_each({"num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port",
                      "rdzv_backend", "same_network", "main_training_function", "gpu_ids", "enable_cpu_affinity"},
                     kOfLauncher);
    reader.finish({{"compute_environment", "LOCAL_MACHINE"}, {"downcast_bf16", "no"}});
}

}  // namespace atl::run_settings
