#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "shared/base/result.h"
#include "shared/json/json.h"
#include "shared/run_settings/choices.h"

// What a run shall do: the flags of `train`, `eval`, `plan` and `generate`, which are also the keys of run.json (with _
// for -) and of a job's training settings. The trainer and dispatch read and check them by this one set of rules.
//
//   RunConfig config;
//   ATOLL_RETURN_IF_ERROR(assign_json(config, settings, kTrain));   // or assign() flag by flag; says what is wrong
//   where ATOLL_RETURN_IF_ERROR(check_training(config, ranks));           // the rules that join settings
//   ATOLL_TRY(const BatchPlan batch, plan_batch(config, ranks));    // rows a step, a rank and micro-step
namespace atl::run_settings {

// How often something is done: after so many steps each (0: never), or after each pass over the data.
struct Interval {
    std::int64_t steps = 0;
    bool is_epoch = false;
    bool is_never() const { return steps == 0 && !is_epoch; }
    // How often in the first `step` steps, of so many rows each. A pass ends in the step that has its last row.
    std::int64_t times(std::int64_t step, std::int64_t rows_a_step, std::int64_t rows) const {
        if (is_epoch) return step * rows_a_step / rows;
        return steps == 0 ? 0 : step / steps;
    }
    bool operator==(const Interval&) const = default;
};
inline constexpr std::string_view kEachEpoch = "epoch";

struct RunConfig {
    std::string model;
    std::string data;
    std::string out;
    std::string val_data;

    std::int64_t steps = 0;              // 0: by epochs
    std::int64_t epochs = 0;             // 0: by steps
    std::int64_t global_batch_size = 0;  // rows a step over all ranks; 0: from the three below
    std::int64_t batch_size = 0;         // rows a rank and micro-step; 0: from the others
    std::int64_t grad_accum = 0;         // micro-steps a step; 0: from the others
    std::int64_t train_samples = 0;      // rows used at most; 0: all
    std::int64_t val_samples = 0;
    OnOff shuffle = OnOff::kOn;
    OnOff cross_document_attention = OnOff::kOff;
    std::int64_t seed = 0;

    OptimizerKind optimizer = OptimizerKind::kAdamW;
    double lr = 3e-4;
    double lr_embedding = 0;  // 0: as lr
    LrSchedule schedule = LrSchedule::kConstant;
    std::int64_t warmup_steps = 0;
    OnOff warmup_from_zero = OnOff::kOn;  // off: step k of N has k/N of the rate; dispatch sets it so
    std::int64_t schedule_runs = 1;       // of as many steps, that one schedule and its warm-up go over: a job's rounds
    std::int64_t schedule_run = 1;        // which of them this is, from 1
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.01;
    double momentum = 0;  // SGD's, or Muon's where it is above 0
    bool no_decay_norms = false;
    double max_grad_norm = 1;
    double proximal_mu = 0;                // 0: no proximal term
    double control_variate = 0;            // how much of it is added to the gradient; 0: there is none
    std::string control_variate_name;      // kept with this run's
    std::string control_variate_from;      // another run's `out`; empty: nothing is added to the gradient
    std::string control_variate_if_named;  // whose alone is taken, and only if it fits; empty: all others are errors

    Precision precision = Precision::kFp32;
    double loss_scale = 65536;                // the first one, of fp16
    std::optional<Precision> compute_dtype;   // absent: fp32
    std::optional<Precision> residual_dtype;  // absent: as compute_dtype
    Masters masters = Masters::kFp32;
    MomentsPrecision moments_dtype = MomentsPrecision::kFp32;
    ReducePrecision reduce_dtype = ReducePrecision::kFp32;
    Sharding sharding = Sharding::kNone;
    std::int64_t shard_group = 0;
    Device device = Device::kCpu;
    DistributedBackend distributed_backend = DistributedBackend::kAuto;
    std::int64_t threads = 0;  // a process; 0: its share of the cores
    bool deterministic = false;
    ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
    std::int64_t checkpoint_layers = 0;  // 0: all
    Offload offload_optimizer = Offload::kNone;
    Offload offload_params = Offload::kNone;
    std::string offload_dir;
    std::int64_t lora_rank = 0;
    double lora_alpha = 0;
    double lora_dropout = 0;
    std::string lora_targets;
    OnOff lora_freeze_a = OnOff::kOff;
    std::string adapter;  // directory; empty: none, or new ones by lora_rank
    Quantization quantize = Quantization::kNone;

    Interval eval_every;       // never: only at the end when val_data is given
    bool save_best = false;    // the model of the lowest validation loss, too
    Interval save_every;       // never: not before the end
    double save_interval = 0;  // seconds from one state to the next; 0: none by time
    OnOff save_async = OnOff::kOff;
    bool resume = false;
    bool overwrite = false;
    bool keep_optimizer = false;
    std::string optimizer_name;  // kept with the moments
    std::string optimizer_from;  // another run's `out`; empty: the moments begin as zeros
    std::string
        optimizer_if_named;  // whose moments alone are taken, and only if they fit; empty: all others are errors
    bool broadcast_from_rank0 = false;
    std::optional<Precision> save_dtype;  // absent: the base's
    bool token_counts = false;
    UpdateFormat update_format = UpdateFormat::kModel;
    std::string update_base;              // what a delta calls the base; empty: the sha256 of its tensors
    std::string rounding_error_name;      // kept with what rounding the delta loses
    std::string rounding_error_from;      // another run's `out`; empty: nothing is added to the change
    std::string rounding_error_if_named;  // whose alone is taken, and only if it fits; empty: all others are errors
    double time_limit = 0;                // seconds; 0: none
    double collective_timeout = 600;      // seconds; 0: none
    double peak_tflops = 0;               // of one rank, for mfu; 0: measured
    std::int64_t loss_tokens_min = 0;     // target tokens behind each loss that is printed; 0: 1
    std::int64_t trace_steps = 0;         // 0: none
    std::int64_t trace_from = 1;          // the first step that is traced

    // Of `generate`.
    std::string prompt;
    std::int64_t max_tokens = 64;
    double temperature = 0;  // 0: always the likeliest token
    double top_p = 1;

    // Of `plan`.
    std::int64_t ranks = 0;           // 0: those that a launcher started
    std::int64_t ranks_per_node = 0;  // 0: all
    std::int64_t memory_bytes = 0;    // of one machine; 0: what this one has left
    std::string card;                 // a GPU's name (training_memory/cards.h); empty: the GPU that is here

    // Not built yet: only these values pass (see assign).
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::int64_t bucket_bytes = 0;

    // A CPU computes in fp32 unless it is told otherwise, a GPU in the format of the weights.
    Precision computes_in() const {
        return compute_dtype.value_or(device == Device::kCpu ? Precision::kFp32 : precision);
    }
    Precision residual_in() const { return residual_dtype.value_or(computes_in()); }
    double momentum_used() const { return optimizer == OptimizerKind::kMuon && momentum == 0 ? 0.95 : momentum; }
    // Gradients may be too small or too large for fp16.
    bool scales_loss() const { return precision == Precision::kFp16; }

    std::set<std::string, std::less<>> given;  // names of the options that somebody set
};

// Which commands an option belongs to.
enum Commands : unsigned { kTrain = 1, kEval = 2, kPlan = 4, kGenerate = 8, kAll = 7, kEvery = 15 };

// What another value of an option changes of a training's result, beyond the rounding of sums. The fingerprint by which
// --resume knows a run is made from this (trainer/train/run_fingerprint.h), so a wrong one lets a run go on as another.
enum class Effect : std::uint8_t {
    kNone = 1,    // nothing: how and where it is computed, what is told and kept meanwhile
    kResult,      // the weights; the fingerprint has the value as it was given
    kIndirect,    // the weights, through what it stands for: a file's content, a number of steps
    kSavedFiles,  // the files that the same weights are saved in
};

template <class... T>
using MemberOf = std::variant<T RunConfig::*...>;
using Member = MemberOf<std::int64_t, double, bool, std::string, Interval, OnOff, OptimizerKind, LrSchedule, Precision,
                        std::optional<Precision>, MomentsPrecision, ReducePrecision, Masters, Sharding, Device,
                        DistributedBackend, ActivationCheckpointing, Offload, Quantization, UpdateFormat>;

struct Option {
    std::string_view name;  // with dashes: "warmup-steps"
    Member member;
    std::string_view help;
    Effect effect;  // without a default, so that no row goes without one
    unsigned commands = kAll;
    double min = 0;           // of numbers
    double max = 1e15;        // of numbers
    std::string key() const;  // its name in run.json: "warmup_steps"
    bool is_built() const;    // false: it has one value alone, any other is refused
};

std::span<const Option> options();
const Option* find_option(std::string_view name, unsigned commands);
// The words of a choice; empty: it is none.
std::span<const std::string_view> words(const Option& option);
std::string value_text(const RunConfig& config, const Option& option);

// Errors of all that follows are kInvalidArgument and name flags, "--warmup-steps", in the field and in the message.
// This is the same error for a reader of JSON: "warmup_steps".
Error with_keys(Error error);

// Sets one option from a flag's text. What is not built is refused, never ignored.
Status assign(RunConfig& config, const Option& option, std::string_view text);

// Sets what a JSON object says. The error's field is the key: unknown, of another command, of a wrong type, out of
// range, not built.
Status assign_json(RunConfig& config, const json::Json& object, Commands command);

// The same of a run.json; the error's field names the file as well, or --config when that cannot be read.
Status assign_file(RunConfig& config, const std::filesystem::path& file, Commands command);

// What numbers of rows and steps go up to, so that no product of theirs, nor the bytes that they take, is too large for
// 64 bits.
inline constexpr double kMicroRowsMax = 1e6;  // a rank and micro-step
inline constexpr double kGlobalRowsMax = 1e9;
inline constexpr double kAccumulationMax = 1e9;
inline constexpr double kStepsMax = 1e9;
inline constexpr double kEpochsMax = 1e6;
inline constexpr double kRanksMax = 1 << 20;

// The error names the option that was given and means nothing here: --momentum with AdamW.
Status check_needs(const RunConfig& config, Commands command);

// How the rows of one step divide: global = ranks × accumulation × micro.
struct BatchPlan {
    std::int64_t global = 0;        // rows a step over all ranks
    std::int64_t micro = 0;         // rows a rank and micro-step
    std::int64_t accumulation = 0;  // micro-steps a step
};
// With --deterministic a micro-step is one row. The error names the flag that makes the rows not divide, or too many.
Result<BatchPlan> plan_batch(const RunConfig& config, int ranks);

// How many consecutive ranks share a copy in the hybrid modes: --shard-group, or those of one machine; 0 in the other
// modes. An error when it does not divide the ranks, or is given without a hybrid mode.
Result<int> plan_shard_group(const RunConfig& config, int ranks, int ranks_on_node);

// The number of steps: --steps, or as many as it takes to see every row --epochs times. An error also for a warm-up
// that is longer.
Result<std::int64_t> plan_steps(const RunConfig& config, std::int64_t rows, std::int64_t global_batch);

// The tokens of a rank and micro-step, `rows` of `seq_len`, are few enough to be counted in 32 bits.
Status check_micro_step(std::int64_t rows, std::int64_t seq_len);

// What the settings say of a run's steps and of the model's layers.
Status check_extent(const RunConfig& config, std::int64_t steps, std::int64_t layers);

// All rules that need neither data nor model nor machines, for a training on `ranks` ranks.
Status check_training(const RunConfig& config, int ranks);

}  // namespace atl::run_settings
