#include "shared/run_settings/other_words.h"

#include <algorithm>
#include <vector>

namespace atl::run_settings {
namespace {

constexpr std::string_view kLauncher = "the launcher starts the ranks: mpirun -n N, or srun";
constexpr std::string_view kRows = "rows are as long as tokenize made them";

const std::vector<OtherWord>& word_table() {
    static const std::vector<OtherWord> all = {
        // Files.
        {"model_name_or_path", "model", {}, "a directory"},
        {"model_name", "model", {}, "a directory"},
        {"pretrained_model_name_or_path", "model", {}, "a directory"},
        {"base_model", "model", {}, "a directory"},
        {"output_dir", "out"},
        {"save_dir", "out"},
        {"dataset", "data", {}, "a directory that tokenize makes"},
        {"dataset_name", "data", {}, "a directory that tokenize makes"},
        {"dataset_path", "data", {}, "a directory that tokenize makes"},
        {"train_file", "data", {}, "a directory that tokenize makes"},
        {"train_data", "data", {}, "a directory that tokenize makes"},
        {"data_path", "data", {}, "a directory that tokenize makes"},
        {"validation_file", "val-data", {}, "a directory that tokenize makes"},
        {"eval_dataset", "val-data", {}, "a directory that tokenize makes"},
        {"tokenizer_name", "tokenizer", {}, {}, "tokenize"},
        {"tokenizer_name_or_path", "tokenizer", {}, {}, "tokenize"},
        // Rows and steps.
        {"max_steps", "steps"},
        {"train_iters", "steps"},
        {"num_steps", "steps"},
        {"total_steps", "steps"},
        {"num_train_epochs", "epochs"},
        {"num_epochs", "epochs"},
        {"train_batch_size", "global-batch-size"},
        {"total_batch_size", "global-batch-size"},
        {"per_device_train_batch_size", "batch-size"},
        {"per_device_batch_size", "batch-size"},
        {"per_device_eval_batch_size", "batch-size", {}, "`eval` has one of its own"},
        {"val_batch_size", "batch-size", {}, "`eval` has one of its own"},
        {"train_micro_batch_size_per_gpu", "batch-size"},
        {"micro_batch_size", "batch-size"},
        {"batch_size_training", "batch-size"},
        {"gradient_accumulation_steps", "grad-accum"},
        {"grad_accum_steps", "grad-accum"},
        {"accumulate_grad_batches", "grad-accum"},
        {"max_train_samples", "train-samples"},
        {"max_eval_samples", "val-samples"},
        {"max_train_step", "steps"},
        {"max_seq_length", "seq-len", {}, kRows, "tokenize"},
        {"max_seq_len", "seq-len", {}, kRows, "tokenize"},
        {"max_length", "seq-len", {}, kRows, "tokenize"},
        {"block_size", "seq-len", {}, kRows, "tokenize"},
        {"cutoff_len", "seq-len", {}, kRows, "tokenize"},
        {"context_length", "seq-len", {}, kRows, "tokenize"},
        {"model_max_length", "seq-len", {}, kRows, "tokenize"},
        {"seq_length", "seq-len", {}, kRows, "tokenize"},
        {"packing", "batching", "packing", {}, "tokenize"},
        {"batching_strategy", "batching", {}, {}, "tokenize"},
        {"max_new_tokens", "max-tokens", {}, {}, "generate"},
        // Optimizer.
        {"learning_rate", "lr"},
        {"optim", "optimizer"},
        {"adam_beta1", "beta1"},
        {"adam_beta2", "beta2"},
        {"betas", "beta1", {}, "and --beta2"},
        {"adam_epsilon", "eps"},
        {"epsilon", "eps"},
        {"adam_eps", "eps"},
        {"wd", "weight-decay"},
        {"clip_grad", "max-grad-norm"},
        {"gradient_clipping", "max-grad-norm"},
        {"gradient_clipping_threshold", "max-grad-norm"},
        {"max_norm", "max-grad-norm"},
        {"lr_scheduler_type", "schedule"},
        {"lr_scheduler", "schedule"},
        {"lr_decay_style", "schedule"},
        {"warmup_ratio", "warmup-steps", {}, "a number of steps: the ratio times --steps"},
        {"num_warmup_steps", "warmup-steps"},
        {"lr_warmup_iters", "warmup-steps"},
        {"lr_warmup_steps", "warmup-steps"},
        {"min_lr", "", {}, "linear and cosine schedules end at 0 here: leave it out"},
        {"gamma", "", {}, "a learning rate that decays per epoch is not supported: choose a --schedule"},
        // Precision.
        {"bf16", "precision", "bf16"},
        {"fp16", "precision", "fp16"},
        {"pure_bf16", "precision", "bf16", "with --masters none"},
        {"use_fp16", "precision", "fp16"},
        {"mixed_precision", "precision"},
        {"torch_dtype", "precision"},
        {"dtype", "precision"},
        {"initial_scale_power", "loss-scale", {}, "2 to that power"},
        {"load_in_4bit", "quantize", "nf4"},
        {"load_in_8bit", "quantize", "int8"},
        {"quantization_bit", "quantize"},
        {"quantization", "quantize", {}, "4bit is nf4, 8bit int8"},
        {"tf32", "precision", {}, "bf16, or fp32, which is not rounded to TF32"},
        // Ranks and memory.
        {"fsdp", "sharding", "full_shard"},
        {"enable_fsdp", "sharding", "full_shard"},
        {"fsdp_sharding_strategy", "sharding"},
        {"sharding_strategy", "sharding"},
        {"zero_stage", "sharding", {}, "1 is shard_optimizer, 2 shard_grad_op, 3 full_shard"},
        {"zero_optimization", "sharding", {}, "`atoll-trainer config-from` translates a DeepSpeed file"},
        {"deepspeed", "sharding", {}, "`atoll-trainer config-from` translates a DeepSpeed file"},
        {"deepspeed_config", "sharding", {}, "`atoll-trainer config-from` translates a DeepSpeed file"},
        {"config_file", "config", {}, "`atoll-trainer config-from` translates an accelerate file"},
        {"low_cpu_fsdp", "", {}, "each rank reads only its part of the model: leave it out"},
        {"hybrid_sharding_group_size", "shard-group"},
        {"sharding_group_size", "shard-group"},
        {"cpu_offload", "offload-params", "cpu"},
        {"fsdp_offload_params", "offload-params", "cpu"},
        {"offload_param_device", "offload-params"},
        {"offload_optimizer_device", "offload-optimizer"},
        {"nvme_path", "offload-dir"},
        {"gradient_checkpointing", "activation-checkpointing", "full"},
        {"use_gradient_checkpointing", "activation-checkpointing", "full"},
        {"fsdp_activation_checkpointing", "activation-checkpointing", "full"},
        {"recompute_granularity", "activation-checkpointing"},
        {"full_determinism", "deterministic"},
        {"ddp_timeout", "collective-timeout"},
        {"tensor_model_parallel_size", "tp"},
        {"pipeline_model_parallel_size", "pp"},
        {"nproc_per_node", "", {}, kLauncher},
        {"nnodes", "", {}, kLauncher},
        {"node_rank", "", {}, kLauncher},
        {"rdzv_endpoint", "", {}, kLauncher},
        {"rdzv_backend", "", {}, kLauncher},
        {"master_addr", "", {}, kLauncher},
        {"master_port", "", {}, kLauncher},
        {"num_processes", "", {}, kLauncher},
        {"num_machines", "", {}, kLauncher},
        {"num_gpus", "", {}, kLauncher},
        {"local_rank", "", {}, kLauncher},
        {"dataloader_num_workers", "", {}, "rows are read ahead by themselves: leave it out"},
        {"num_workers_dataloader", "", {}, "rows are read ahead by themselves: leave it out"},
        // Adapters.
        {"adapter_name_or_path", "adapter", {}, "a directory"},
        {"peft_model", "adapter", {}, "a directory"},
        {"peft_model_id", "adapter", {}, "a directory"},
        {"lora_model_dir", "adapter", {}, "a directory"},
        {"lora_r", "lora-rank"},
        {"use_rslora",
         "",
         {},
         "a new adapter is scaled by lora_alpha / lora_rank: rsLoRA's scale needs lora_alpha times "
         "the root of lora_rank; adapters that have it are trained further with it"},
        {"use_peft", "lora-rank", {}, "above 0"},
        {"use_lora", "lora-rank", {}, "above 0"},
        {"lora_target", "lora-targets"},
        {"lora_target_modules", "lora-targets"},
        {"target_modules", "lora-targets"},
        // Validating, saving and stopping.
        {"eval_steps", "eval-every"},
        {"eval_interval", "eval-every"},
        {"eval_strategy", "eval-every", {}, "a number of steps, or epoch"},
        {"evaluation_strategy", "eval-every", {}, "a number of steps, or epoch"},
        {"run_validation", "val-data", {}, "a directory that tokenize makes; --eval-every says how often"},
        {"save_total_limit", "", {}, "only the newest state is kept, and the best model by --save-best: leave it out"},
        {"load_best_model_at_end", "save-best", {}, "the best model is in OUT.best"},
        {"save_steps", "save-every"},
        {"save_interval_steps", "save-every"},
        {"save_strategy", "save-every", {}, "a number of steps, or epoch"},
        {"checkpointing_steps", "save-every"},
        {"resume_from_checkpoint", "resume", {}, "it goes on from the state beside --out"},
        {"overwrite_output_dir", "overwrite"},
        {"max_time", "time-limit", {}, "seconds"},
        {"logging_steps", "", {}, "every step is printed: leave it out"},
        {"log_interval", "", {}, "every step is printed: leave it out"},
        {"report_to", "", {}, "steps are lines of JSON on standard output: leave it out"},
        {"data_seed", "seed"},
    };
    return all;
}

std::string as_key(std::string_view word) {
    std::string key(word.substr(std::min(word.find_first_not_of('-'), word.size())));
    std::ranges::transform(key, key.begin(), [](char c) {
        if (c == '-') return '_';
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return key;
}

}  // namespace

std::span<const OtherWord> other_words() {
    return word_table();
}

const OtherWord* find_other_word(std::string_view word) {
    const auto found = std::ranges::find(word_table(), as_key(word), &OtherWord::word);
    return found == word_table().end() ? nullptr : &*found;
}

bool is_of_launcher(const OtherWord& other) {
    return other.note == kLauncher;
}

std::string our_word(const OtherWord& other, bool is_of_command) {
    if (other.option.empty()) return "is not a setting here: " + std::string(other.note);
    std::string text = "is --" + std::string(other.option);
    if (!other.value.empty()) text += " " + std::string(other.value);
    if (!is_of_command) text += " of `" + std::string(other.command.empty() ? "train" : other.command) + "`";
    text += " here";
    if (!other.note.empty()) text += ": " + std::string(other.note);
    return text;
}

}  // namespace atl::run_settings
