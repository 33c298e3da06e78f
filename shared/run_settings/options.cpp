#include <algorithm>
#include <type_traits>
#include <vector>

#include "shared/base/text.h"
#include "shared/run_settings/run_settings.h"

namespace atl::run_settings {
namespace {

using C = RunConfig;
using E = Effect;

const std::vector<Option>& table() {
    static const std::vector<Option> all = {
        {"model", &C::model, "model directory (Hugging Face layout)", E::kIndirect, kEvery},
        {"data", &C::data, "data directory that `tokenize` wrote, or a .safetensors file with int32 input_ids",
         E::kIndirect},
        {"out", &C::out, "directory for the trained model", E::kNone, kTrain | kPlan},
        {"val-data", &C::val_data, "data for validation", E::kNone, kTrain | kPlan},
        {"steps", &C::steps, "optimizer steps (or --epochs); 0 without --epochs writes the model as it is",
         E::kIndirect, kTrain | kPlan, 0, kStepsMax},
        {"epochs", &C::epochs, "passes over the data, instead of --steps; 0: not given", E::kIndirect, kTrain | kPlan,
         0, kEpochsMax},
        {"global-batch-size", &C::global_batch_size, "rows a step over all ranks", E::kIndirect, kTrain | kPlan, 1,
         kGlobalRowsMax},
        {"batch-size", &C::batch_size,
         "rows a rank and micro-step; the default is 1 in training, 8 in eval, less where rows are few", E::kIndirect,
         kAll, 1, kMicroRowsMax},
        {"grad-accum", &C::grad_accum, "micro-steps a step; the default is 1", E::kIndirect, kTrain | kPlan, 1,
         kAccumulationMax},
        {"train-samples", &C::train_samples, "use at most the first N rows of the data; 0: all", E::kIndirect,
         kTrain | kPlan, 0},
        {"val-samples", &C::val_samples, "use at most the first N rows of the validation data; 0: all", E::kNone, kAll,
         0},
        {"shuffle", &C::shuffle, "a new order of the rows each epoch", E::kResult, kTrain | kPlan},
        {"cross-document-attention", &C::cross_document_attention,
         "let attention and positions run on over the documents of a packed row", E::kResult, kAll},
        {"seed", &C::seed, "random seed; the default is 0", E::kResult, kTrain | kPlan | kGenerate, 0},
        {"optimizer", &C::optimizer,
         "optimizer; muon updates the layers' weight matrices with Muon and everything else with AdamW", E::kResult,
         kTrain | kPlan},
        {"lr", &C::lr, "learning rate after the warm-up", E::kResult, kTrain | kPlan, 0, 1e6},
        {"lr-embedding", &C::lr_embedding,
         "learning rate of embedding and head; with muon, of all parameters that AdamW updates; 0: same as --lr",
         E::kIndirect, kTrain | kPlan, 0, 1e6},
        {"schedule", &C::schedule, "learning-rate schedule after the warm-up; linear and cosine end at 0", E::kResult,
         kTrain | kPlan},
        {"warmup-steps", &C::warmup_steps, "steps over which the learning rate rises; 0: none", E::kResult,
         kTrain | kPlan, 0},
        {"warmup-from-zero", &C::warmup_from_zero,
         "on: the warm-up starts at rate 0, as in transformers; off: step k of N uses k/N of --lr, as in torchtitan. "
         "Jobs default to off",
         E::kIndirect, kTrain | kPlan},
        {"schedule-runs", &C::schedule_runs,
         "number of equally long runs that share one --schedule and its warm-up; 1: this run alone", E::kIndirect,
         kTrain | kPlan, 1, 1'000'000},
        {"schedule-run", &C::schedule_run, "which of the --schedule-runs this is, counting from 1", E::kIndirect,
         kTrain | kPlan, 1, 1'000'000},
        {"beta1", &C::beta1, "AdamW's beta1", E::kResult, kTrain | kPlan, 0, 0.9999999},
        {"beta2", &C::beta2, "AdamW's beta2", E::kResult, kTrain | kPlan, 0, 0.9999999},
        {"eps", &C::eps, "AdamW's epsilon, above 0", E::kResult, kTrain | kPlan, 1e-30, 1},
        {"weight-decay", &C::weight_decay, "decoupled weight decay, on every parameter", E::kResult, kTrain | kPlan, 0,
         1e3},
        {"momentum", &C::momentum, "momentum of SGD (0: none) or Muon (0: the default, 0.95)", E::kResult,
         kTrain | kPlan, 0, 0.9999999},
        {"no-decay-norms", &C::no_decay_norms, "no weight decay on norms and biases", E::kResult, kTrain | kPlan},
        {"max-grad-norm", &C::max_grad_norm, "clip the gradient's norm over all parameters; 0: off", E::kResult,
         kTrain | kPlan, 0, 1e12},
        {"proximal-mu", &C::proximal_mu,
         "add mu · (w - w of the start) to the gradient (FedProx), so that training stays near the given model; 0: off",
         E::kResult, kTrain | kPlan, 0, 1e6},
        {"control-variate", &C::control_variate,
         "add this · (c - own) to the gradient (SCAFFOLD): the mean gradients of all sites, in MODEL/control_variate, "
         "and "
         "of this one in the round before; write this run's to OUT/control_variate.safetensors. 0: off",
         E::kIndirect, kTrain | kPlan, 0, 1},
        {"control-variate-name", &C::control_variate_name,
         "name stored with the mean gradient that is kept in OUT.state", E::kNone, kTrain | kPlan},
        {"control-variate-from", &C::control_variate_from,
         "--out of this site's run of the round before with --control-variate; take the mean gradient that it kept",
         E::kIndirect, kTrain | kPlan},
        {"control-variate-if-named", &C::control_variate_if_named,
         "use that of --control-variate-from only if it has this --control-variate-name, is whole and fits the model; "
         "otherwise warn and add nothing",
         E::kIndirect, kTrain | kPlan},
        {"precision", &C::precision, "dtype of the weights; see --compute-dtype and --masters", E::kResult, kEvery},
        {"loss-scale", &C::loss_scale, "initial loss scale for --precision fp16", E::kResult, kTrain | kPlan, 0x1p-14,
         0x1p120},
        {"moments-dtype", &C::moments_dtype, "dtype of the optimizer's moments; bf16 is rounded stochastically",
         E::kResult, kTrain | kPlan},
        {"compute-dtype", &C::compute_dtype,
         "dtype of matrix products and activations; sums are fp32. The default is fp32, on a GPU that of --precision",
         E::kIndirect, kEvery},
        {"residual-dtype", &C::residual_dtype,
         "dtype of the residual stream: fp32, or as --compute-dtype, which is the default", E::kIndirect, kEvery},
        {"masters", &C::masters,
         "fp32: keep fp32 master weights beside bf16 ones; none: update bf16 weights directly, rounded stochastically",
         E::kResult, kTrain | kPlan},
        {"reduce-dtype", &C::reduce_dtype,
         "dtype in which ranks exchange gradients; mpi adds them in fp32, nccl in this dtype", E::kResult,
         kTrain | kPlan},
        {"sharding", &C::sharding, "what to split across ranks: optimizer state, gradients, weights", E::kNone, kEvery},
        {"shard-group", &C::shard_group,
         "consecutive ranks that share one copy in the hybrid modes; the default is those of one machine", E::kNone,
         kEvery, 1, 1e6},
        {"tp", &C::tp, "tensor-parallel degree", E::kNone, kEvery, 1, 1e6},
        {"pp", &C::pp, "pipeline-parallel degree", E::kNone, kEvery, 1, 1e6},
        {"device", &C::device, "device to compute on", E::kIndirect, kEvery},
        {"distributed-backend", &C::distributed_backend,
         "library that moves the tensors of GPUs between ranks; auto: nccl where it is found and each rank has a GPU "
         "of "
         "its own, else mpi",
         E::kNone, kAll},
        {"threads", &C::threads, "threads a process; the default is its share of the cores", E::kNone, kEvery, 1, 4096},
        {"deterministic", &C::deterministic,
         "the same losses, bit for bit, for every sharding and number of ranks: a row at a time, added up by row",
         E::kResult, kAll},
        {"activation-checkpointing", &C::activation_checkpointing,
         "which activations to recompute in the backward pass; selective: all those of every second layer", E::kNone,
         kTrain | kPlan},
        {"checkpoint-layers", &C::checkpoint_layers,
         "recompute only in the first N layers (not with selective); 0: in all", E::kNone, kTrain | kPlan, 0, 1e6},
        {"offload-optimizer", &C::offload_optimizer,
         "where moments and masters lie: in the device's memory (none), the host's (cpu, for GPUs: on a CPU the same) "
         "or a file of each rank (nvme)",
         E::kNone, kTrain | kPlan},
        {"offload-params", &C::offload_params,
         "where weights lie: in the device's memory (none) or the host's (cpu, for GPUs: on a CPU the same), "
         "from which each block's are copied before it runs",
         E::kNone, kAll},
        {"offload-dir", &C::offload_dir, "directory for nvme, on a local disk; the default is $TMPDIR", E::kNone,
         kTrain | kPlan},
        {"bucket-bytes", &C::bucket_bytes, "bytes of one exchange of gradients", E::kNone, kTrain | kPlan, 0, 1e15},
        {"adapter", &C::adapter, "adapter directory (PEFT) to use with the model, and to train further", E::kIndirect,
         kEvery},
        {"lora-rank", &C::lora_rank,
         "train new low-rank adapters of this rank on the frozen model; --out is a PEFT one; 0: none. "
         "Beside --adapter only that one's rank",
         E::kIndirect, kTrain | kPlan, 0, 65536},
        {"lora-alpha", &C::lora_alpha, "an adapter counts alpha / rank times; the default is the rank", E::kIndirect,
         kTrain | kPlan, 1e-6, 1e6},
        {"lora-dropout", &C::lora_dropout, "probability that an adapter's input is left out of a step", E::kIndirect,
         kTrain | kPlan, 0, 0.999},
        {"lora-targets", &C::lora_targets, "linears that get an adapter, or all-linear; the default is q_proj,v_proj",
         E::kIndirect, kTrain | kPlan},
        {"lora-freeze-a", &C::lora_freeze_a,
         "on: train only the adapters' B and leave A as it begins. The mean of such adapters, all with one A, is the "
         "mean of what they add to the model",
         E::kIndirect, kTrain | kPlan},
        {"broadcast-from-rank0", &C::broadcast_from_rank0,
         "only rank 0 reads the weights and sends them to the others; else each rank reads its own slices", E::kNone,
         kEvery},
        {"quantize", &C::quantize, "format of the layers' frozen matrices", E::kResult, kEvery},
        {"eval-every", &C::eval_every,
         "validate every N steps, or after each epoch, and at the end; 0: at the end alone", E::kNone, kTrain | kPlan},
        {"save-best", &C::save_best, "keep the model of the lowest validation loss so far in OUT.best", E::kSavedFiles,
         kTrain | kPlan},
        {"save-every", &C::save_every,
         "save the training state every N steps, or after each epoch; 0: only when it stops early", E::kNone,
         kTrain | kPlan},
        {"save-interval", &C::save_interval, "save the training state every N seconds; 0: no timed saves", E::kNone,
         kTrain | kPlan, 0, 1e9},
        {"save-async", &C::save_async,
         "write the states of --save-every and --save-interval while steps go on, from a copy in memory: of weights "
         "and moments, on each "
         "rank its part",
         E::kNone, kTrain | kPlan},
        {"resume", &C::resume, "continue from the state beside --out, if there is one", E::kNone, kTrain | kPlan},
        {"overwrite", &C::overwrite, "replace the model in --out, and give up the state of a run that stopped",
         E::kNone, kTrain | kPlan},
        {"keep-optimizer", &C::keep_optimizer,
         "keep the optimizer's moments in OUT.state, for the --optimizer-from of a later run", E::kNone,
         kTrain | kPlan},
        {"optimizer-name", &C::optimizer_name, "name to keep with the moments of --keep-optimizer", E::kNone,
         kTrain | kPlan},
        {"optimizer-from", &C::optimizer_from,
         "--out of an earlier run with --keep-optimizer; start with the moments it kept", E::kIndirect, kTrain | kPlan},
        {"optimizer-if-named", &C::optimizer_if_named,
         "use the moments of --optimizer-from only if they have this --optimizer-name, are whole and fit the run; "
         "otherwise warn and start with moments of zero",
         E::kIndirect, kTrain | kPlan},
        {"save-dtype", &C::save_dtype, "dtype of the saved weights; the default is the base's", E::kSavedFiles,
         kTrain | kPlan},
        {"token-counts", &C::token_counts,
         "write OUT/token_counts.safetensors: how often each token stood in the rows of the training", E::kSavedFiles,
         kTrain | kPlan},
        {"update-format", &C::update_format,
         "write the whole model, or only the change of its weights as int8 or int4, to OUT/delta.safetensors; "
         "OUT.state "
         "then keeps the rounding error, which a later run adds with --rounding-error-from",
         E::kSavedFiles, kTrain | kPlan},
        {"update-base", &C::update_base,
         "what delta.safetensors calls the model or adapter that it is a change of; the default is the sha256 of its "
         "tensors",
         E::kSavedFiles, kTrain | kPlan},
        {"rounding-error-name", &C::rounding_error_name, "name to keep with what rounding the change loses", E::kNone,
         kTrain | kPlan},
        {"rounding-error-from", &C::rounding_error_from,
         "--out of an earlier run with --update-format int8 or int4; add what rounding its change lost to this one",
         E::kSavedFiles, kTrain | kPlan},
        {"rounding-error-if-named", &C::rounding_error_if_named,
         "use that of --rounding-error-from only if it has this --rounding-error-name, is whole and fits the model; "
         "otherwise warn and add nothing",
         E::kSavedFiles, kTrain | kPlan},
        {"time-limit", &C::time_limit, "stop with a checkpoint after so many seconds; 0: none", E::kNone,
         kTrain | kPlan, 0, 1e9},
        {"collective-timeout", &C::collective_timeout,
         "seconds that a rank waits for the others, or for its device to get on, before it ends the run and names "
         "those that do not come; one that reads and gets on is waited for. 0: for ever",
         E::kNone, kEvery, 0, 1e9},
        {"peak-tflops", &C::peak_tflops,
         "peak of one rank, for mfu and hfu; the default is the best rate of matrix products that is measured before "
         "step 1",
         E::kNone, kTrain | kPlan, 0, 1e9},
        {"loss-tokens-min", &C::loss_tokens_min,
         "print no loss of fewer target tokens: a smaller step's is printed with that of the next ones, as their mean, "
         "and eval fails",
         E::kNone, kAll, 0},
        {"trace-steps", &C::trace_steps,
         "write when each block, exchange and wait of so many steps began and ended into OUT.trace; 0: off", E::kNone,
         kTrain | kPlan, 0, 1e4},
        {"trace-from", &C::trace_from, "the first step of --trace-steps", E::kNone, kTrain | kPlan, 1},
        {"prompt", &C::prompt, "the text to continue", E::kNone, kGenerate},
        {"max-tokens", &C::max_tokens, "tokens at most", E::kNone, kGenerate, 1},
        {"temperature", &C::temperature, "0, the default: always the likeliest token", E::kNone, kGenerate, 0},
        {"top-p", &C::top_p, "draw from the likeliest tokens that together have this probability", E::kNone, kGenerate,
         1e-9, 1},
        {"ranks", &C::ranks, "ranks of the run that is planned; the default is what a launcher started", E::kNone,
         kPlan, 1, kRanksMax},
        {"ranks-per-node", &C::ranks_per_node, "ranks that share one machine's memory; the default is all", E::kNone,
         kPlan, 1, kRanksMax},
        {"memory-bytes", &C::memory_bytes, "memory of one machine; the default is what this one has left", E::kNone,
         kPlan, 1},
        {"card", &C::card,
         "plan for one of these GPUs a rank, with --device cuda; none needs to be here: h100, h100-94, h200, gh200, "
         "a100-40, a100-64, a100-80, a10, a40, l4, l40, l40s",
         E::kNone, kPlan},
    };
    return all;
}

}  // namespace

std::string Option::key() const {
    std::string key(name);
    std::ranges::replace(key, '-', '_');
    return key;
}

std::span<const Option> options() {
    return table();
}

const Option* find_option(std::string_view name, unsigned commands) {
    const auto found = std::ranges::find(table(), name, &Option::name);
    return found == table().end() || (found->commands & commands) == 0 ? nullptr : &*found;
}

std::span<const std::string_view> words(const Option& option) {
    return std::visit(
        []<class T>(T RunConfig::*) -> std::span<const std::string_view> {
            if constexpr (std::is_enum_v<T>) return kWords<T>;
            if constexpr (std::is_same_v<T, std::optional<Precision>>) return kWords<Precision>;
            return {};
        },
        option.member);
}

std::string value_text(const RunConfig& config, const Option& option) {
    const auto text = [&]<class T>(T RunConfig::* member) -> std::string {
        const T& value = config.*member;
        if constexpr (std::is_enum_v<T>) return std::string(to_string(value));
        if constexpr (std::is_same_v<T, std::optional<Precision>>) return std::string(value ? to_string(*value) : "");
        if constexpr (std::is_same_v<T, std::string>) return value;
        if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
        if constexpr (std::is_same_v<T, Interval>)
            return value.is_epoch ? std::string(kEachEpoch) : std::to_string(value.steps);
        if constexpr (std::is_arithmetic_v<T>) return number_text(static_cast<double>(value));
    };
    return std::visit(text, option.member);
}

}  // namespace atl::run_settings
