#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shared/base/result.h"

// What a run shall do: the flags of `train`, `eval`, `plan` and `generate`, which are also the keys of run.json (with _
// for -).
namespace atl::train {

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
    std::string shuffle = "on";
    std::string cross_document_attention = "off";
    std::int64_t seed = 0;

    std::string optimizer = "adamw";
    double lr = 3e-4;
    std::string schedule = "constant";
    std::int64_t warmup_steps = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.01;
    double momentum = 0;
    bool no_decay_norms = false;
    double max_grad_norm = 1;

    std::string precision = "fp32";
    double loss_scale = 65536;  // the first one, of fp16
    std::string moments_dtype = "fp32";
    std::string sharding = "none";
    std::int64_t shard_group = 0;
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::string device = "cpu";
    std::int64_t threads = 0;  // a process; 0: its share of the cores
    bool deterministic = false;
    std::string activation_checkpointing = "none";
    std::string offload_optimizer = "none";
    std::string offload_params = "none";
    std::string offload_dir;
    std::int64_t bucket_bytes = 0;
    std::int64_t lora_rank = 0;
    double lora_alpha = 0;
    double lora_dropout = 0;
    std::string lora_targets;
    std::string adapter;  // directory; empty: none, or new ones by lora_rank
    std::string quantize = "none";

    std::int64_t eval_every = 0;  // steps; 0: only at the end when val_data is given
    std::int64_t save_every = 0;  // steps; 0: never before the end
    bool resume = false;
    bool overwrite = false;
    bool broadcast_from_rank0 = false;
    std::string save_dtype;  // empty: the base's
    double time_limit = 0;   // seconds; 0: none
    double peak_tflops = 0;  // of one rank, for mfu; 0: measured

    std::set<std::string, std::less<>> given;  // names of the options that somebody set
};

// Which commands an option belongs to.
enum Commands : unsigned { kTrain = 1, kEval = 2, kPlan = 4, kGenerate = 8, kAll = 7, kEvery = 15 };

using Member =
    std::variant<std::int64_t RunConfig::*, double RunConfig::*, bool RunConfig::*, std::string RunConfig::*>;

struct Option {
    std::string_view name;  // with dashes: "warmup-steps"
    Member member;
    std::string_view help;
    unsigned commands = kAll;
    double min = 0;                              // of numbers
    double max = 1e15;                           // of numbers
    std::vector<std::string_view> choices = {};  // of texts; empty: any text
    std::vector<std::string_view> built = {};    // the values that this build has, as texts; empty: all
    std::string key() const;                     // its name in run.json: "warmup_steps"
};

// An option that means nothing unless another one has that value (empty: any).
struct Need {
    std::string_view option;
    std::string_view needed;
    std::string_view value = {};
};

std::span<const Option> options();
std::span<const Need> needs();
const Option* find_option(std::string_view name, Commands command);

// Sets one option from a flag's text. kInvalidArgument names the flag (`--lr`); a value whose part is not built is
// refused, never ignored.
Status assign(RunConfig& config, const Option& option, std::string_view text);

// Sets what the JSON text of a run.json says. kInvalidArgument names the key and the file: unknown, of another
// command, of a wrong type, out of range, not built; or --config, when the file cannot be read.
Status assign_file(RunConfig& config, const std::filesystem::path& file, Commands command);

// What numbers of rows and steps go up to, so that no product of theirs, nor the bytes that they take, is too large for
// 64 bits.
inline constexpr double kMicroRowsMax = 1e6;  // a rank and micro-step
inline constexpr double kGlobalRowsMax = 1e9;
inline constexpr double kAccumulationMax = 1e9;
inline constexpr double kStepsMax = 1e9;
inline constexpr double kEpochsMax = 1e6;

// kInvalidArgument names the option that was given and means nothing here: --momentum with AdamW.
Status check_needs(const RunConfig& config, Commands command);

// How the rows of one step divide: global = ranks × accumulation × micro.
struct BatchPlan {
    std::int64_t global = 0;        // rows a step over all ranks
    std::int64_t micro = 0;         // rows a rank and micro-step
    std::int64_t accumulation = 0;  // micro-steps a step
};
// With --deterministic a micro-step is one row. kInvalidArgument names the flag that makes the rows not divide, or too
// many.
Result<BatchPlan> plan_batch(const RunConfig& config, int ranks);

// kInvalidArgument when `rows` of `seq_len` tokens are more than a micro-step takes: 2^31 tokens.
Status check_micro_step(std::int64_t rows, std::int64_t seq_len);

// How many consecutive ranks share a copy in the hybrid modes: --shard-group, or those of one machine; 0 in the other
// modes. kInvalidArgument when it does not divide the ranks, or is given without a hybrid mode.
Result<int> plan_shard_group(const RunConfig& config, int ranks, int ranks_on_node);

// Where an offloaded optimizer's file goes: --offload-dir, or else $TMPDIR. kInvalidArgument: neither is given, or the
// first without --offload-optimizer nvme.
Status settle_offload_dir(RunConfig& config);

// The number of steps: --steps, or as many as it takes to see every row --epochs times. kInvalidArgument also for a
// warm-up that is longer.
Result<std::int64_t> plan_steps(const RunConfig& config, std::int64_t rows, std::int64_t global_batch);

}  // namespace atl::train
