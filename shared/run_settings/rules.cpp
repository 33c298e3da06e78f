#include <algorithm>
#include <array>

#include "shared/run_settings/run_settings.h"

namespace atl::run_settings {
namespace {

// An option that means nothing unless another one has that value, or the other value (empty: any but the default).
struct Need {
    std::string_view option;
    std::string_view needed;
    std::string_view value = {};
    std::string_view other_value = {};
};
constexpr std::array<Need, 24> kNeeds = {{{"momentum", "optimizer", "sgd", "muon"},
                                          {"beta1", "optimizer", "adamw", "muon"},
                                          {"beta2", "optimizer", "adamw", "muon"},
                                          {"eps", "optimizer", "adamw", "muon"},
                                          {"loss-scale", "precision", "fp16"},
                                          {"checkpoint-layers", "activation-checkpointing"},
                                          {"offload-dir", "offload-optimizer", "nvme"},
                                          {"eval-every", "val-data"},
                                          {"save-best", "val-data"},
                                          {"warmup-from-zero", "warmup-steps"},
                                          {"schedule-run", "schedule-runs"},
                                          {"val-samples", "val-data"},
                                          {"trace-from", "trace-steps"},
                                          {"optimizer-name", "keep-optimizer", "true"},
                                          {"optimizer-if-named", "optimizer-from"},
                                          {"control-variate-name", "control-variate"},
                                          {"control-variate-from", "control-variate"},
                                          {"control-variate-if-named", "control-variate-from"},
                                          {"rounding-error-name", "update-format"},
                                          {"rounding-error-from", "update-format"},
                                          {"rounding-error-if-named", "rounding-error-from"},
                                          {"card", "device", "cuda"},
                                          {"top-p", "temperature"},
                                          {"seed", "temperature"}}};  // of `generate`, as no other has that

// Formats that do not go together.
Status check_formats(const RunConfig& config) {
    const Precision compute = config.computes_in(), residual = config.residual_in();
    if (compute != Precision::kFp32 && config.precision != Precision::kFp32 && compute != config.precision)
        return invalid_argument("--compute-dtype", "must be fp32 or --precision's " +
                                                       std::string(to_string(config.precision)) + ", got " +
                                                       std::string(to_string(compute)));
    if (compute == Precision::kFp16 && !config.scales_loss())
        return invalid_argument("--compute-dtype", "fp16 needs --precision fp16, which scales the loss");
    if (residual != Precision::kFp32 && residual != compute)
        return invalid_argument("--residual-dtype", "must be fp32 or --compute-dtype's " +
                                                        std::string(to_string(compute)) + ", got " +
                                                        std::string(to_string(residual)) + ": give --compute-dtype " +
                                                        std::string(to_string(residual)) + " too");
    if (config.reduce_dtype == ReducePrecision::kBf16 && config.deterministic)
        return invalid_argument("--reduce-dtype",
                                "bf16 rounds what --deterministic adds exactly: leave one of them out");
    if (config.masters == Masters::kNone && config.precision != Precision::kBf16)
        return invalid_argument("--masters", "none needs --precision bf16");
    if (config.masters == Masters::kNone && (config.lora_rank > 0 || !config.adapter.empty()))
        return invalid_argument("--masters", "none means nothing with adapters, which are fp32");
    return {};
}

Status check_distributed_backend(const RunConfig& config) {
    if (config.distributed_backend != DistributedBackend::kNccl || config.device == Device::kCuda) return {};
    return invalid_argument("--distributed-backend", "nccl moves the memory of NVIDIA's GPUs: it takes --device cuda");
}

Status check_token_counts(const RunConfig& config) {
    if (!config.token_counts || (config.lora_rank == 0 && config.adapter.empty())) return {};
    return invalid_argument("--token-counts", "means nothing with adapters, which have no row for each token");
}

Status check_control_variate(const RunConfig& config) {
    if (config.control_variate == 0) return {};
    if (config.lora_rank > 0 || !config.adapter.empty())
        return invalid_argument("--control-variate", "needs the gradients of a whole model: leave it out for adapters");
    if (config.proximal_mu > 0)
        return invalid_argument(
            "--control-variate",
            "cannot be combined with --proximal-mu, whose pull would count as a gradient of the data: leave out one of "
            "them");
    if (config.given.contains("steps") && config.steps == 0 && config.epochs == 0)
        return invalid_argument("--control-variate",
                                "means nothing with --steps 0: without steps there are no gradients");
    return {};
}

Status check_update_format(const RunConfig& config) {
    if (config.given.contains("update-base") && config.update_format == UpdateFormat::kModel &&
        config.control_variate == 0)
        return invalid_argument("--update-base", "means nothing without --update-format or --control-variate");
    if (config.update_format == UpdateFormat::kModel) return {};
    if (config.save_best)
        return invalid_argument("--save-best", "means nothing with --update-format " +
                                                   std::string(to_string(config.update_format)) +
                                                   ", which saves the change of the whole run");
    if (!config.save_dtype) return {};
    return invalid_argument("--save-dtype", "means nothing with --update-format " +
                                                std::string(to_string(config.update_format)) +
                                                ", which saves no weights");
}

Status check_muon(const RunConfig& config) {
    if (config.optimizer != OptimizerKind::kMuon) return {};
    if (config.lora_rank > 0 || !config.adapter.empty())
        return invalid_argument("--optimizer", "muon drives whole weight matrices, not adapters: give adamw");
    if (config.offload_optimizer == Offload::kNvme)
        return invalid_argument("--offload-optimizer", "nvme is not available with --optimizer muon: give cpu or none");
    return {};
}

Status check_kept_optimizer(const RunConfig& config) {
    const bool has_moments = config.optimizer != OptimizerKind::kSgd || config.momentum > 0;
    if (has_moments || (!config.keep_optimizer && config.optimizer_from.empty())) return {};
    return invalid_argument(config.keep_optimizer ? "--keep-optimizer" : "--optimizer-from",
                            "sgd without --momentum has no moments to keep: give --momentum, or leave this option out");
}

std::string count_text(std::int64_t count) {
    return std::to_string(count);
}

Result<BatchPlan> divide_rows(const RunConfig& config, int ranks) {
    BatchPlan plan{config.global_batch_size, config.batch_size, config.grad_accum};
    const std::string on_ranks = " over " + count_text(ranks) + (ranks == 1 ? " rank" : " ranks");
    if (plan.global == 0) {
        plan.micro = plan.micro == 0 ? 1 : plan.micro;
        plan.accumulation = plan.accumulation == 0 ? 1 : plan.accumulation;
        const std::int64_t rank_rows = plan.micro * plan.accumulation;
        if (rank_rows > static_cast<std::int64_t>(kGlobalRowsMax) / ranks) {
            return invalid_argument("--grad-accum", "--batch-size × --grad-accum" + on_ranks + " are more than " +
                                                        count_text(static_cast<std::int64_t>(kGlobalRowsMax)) +
                                                        " rows a step");
        }
        plan.global = rank_rows * ranks;
        return plan;
    }
    if (plan.global % ranks != 0) {
        return invalid_argument("--global-batch-size", count_text(plan.global) + " rows" + on_ranks + " do not divide");
    }
    const std::int64_t rank_rows = plan.global / ranks;
    if (plan.micro == 0) {
        plan.accumulation = plan.accumulation == 0 ? 1 : plan.accumulation;
        plan.micro = rank_rows / plan.accumulation;
    } else if (plan.accumulation == 0) {
        plan.accumulation = rank_rows / plan.micro;
    }
    if (plan.micro * plan.accumulation != rank_rows || rank_rows == 0) {
        return invalid_argument(
            "--global-batch-size",
            count_text(plan.global) + " rows" + on_ranks + " are " + count_text(rank_rows) +
                " a rank, which is not --batch-size × --grad-accum" +
                (config.batch_size == 0 ? "" : " (batch size " + count_text(config.batch_size) + ")") +
                (config.grad_accum == 0 ? "" : " (grad accum " + count_text(config.grad_accum) + ")"));
    }
    return plan;
}

}  // namespace

Status check_needs(const RunConfig& config, Commands command) {
    for (const Need& need : kNeeds) {
        const Option* needed = find_option(need.needed, command);
        if (!config.given.contains(need.option) || needed == nullptr) continue;
        const std::string value = value_text(config, *needed);
        if (need.value.empty() ? value != value_text(RunConfig(), *needed)
                               : value == need.value || value == need.other_value)
            continue;
        std::string without = "--" + std::string(need.needed);
        if (!need.value.empty()) without += " " + std::string(need.value);
        if (!need.other_value.empty()) without += " or " + std::string(need.other_value);
        return invalid_argument("--" + std::string(need.option), "means nothing without " + without);
    }
    if (config.given.contains("save-async") && find_option("save-every", command) != nullptr &&
        config.save_every.is_never() && config.save_interval == 0)
        return invalid_argument("--save-async", "means nothing without --save-every or --save-interval");
    if (config.checkpoint_layers > 0 && config.activation_checkpointing == ActivationCheckpointing::kSelective)
        return invalid_argument("--checkpoint-layers",
                                "means nothing with --activation-checkpointing selective, which says which layers; "
                                "give full");
    ATOLL_RETURN_IF_ERROR(check_muon(config));
    ATOLL_RETURN_IF_ERROR(check_kept_optimizer(config));
    ATOLL_RETURN_IF_ERROR(check_distributed_backend(config));
    ATOLL_RETURN_IF_ERROR(check_token_counts(config));
    ATOLL_RETURN_IF_ERROR(check_control_variate(config));
    ATOLL_RETURN_IF_ERROR(check_update_format(config));
    return check_formats(config);
}

Result<BatchPlan> plan_batch(const RunConfig& config, int ranks) {
    ATOLL_TRY(BatchPlan plan, divide_rows(config, ranks));
    if (config.deterministic) plan = {plan.global, 1, plan.global / ranks};
    if (plan.micro > static_cast<std::int64_t>(kMicroRowsMax)) {
        return invalid_argument("--global-batch-size", "makes micro-steps of " + count_text(plan.micro) +
                                                           " rows; give --batch-size, at most " +
                                                           count_text(static_cast<std::int64_t>(kMicroRowsMax)));
    }
    return plan;
}

Result<int> plan_shard_group(const RunConfig& config, int ranks, int ranks_on_node) {
    if (!is_hybrid(config.sharding)) {
        if (config.shard_group == 0) return 0;
        return invalid_argument("--shard-group", "belongs to --sharding hybrid_shard and hybrid_shard_zero2");
    }
    const std::int64_t group = config.shard_group > 0 ? config.shard_group : ranks_on_node;
    if (group <= ranks && ranks % group == 0) return static_cast<int>(group);
    return invalid_argument("--shard-group", count_text(ranks) + (ranks == 1 ? " rank does" : " ranks do") +
                                                 " not divide into groups of " + count_text(group) +
                                                 (config.shard_group > 0 ? "" : ", the ranks of one machine"));
}

Result<std::int64_t> plan_steps(const RunConfig& config, std::int64_t rows, std::int64_t global_batch) {
    if (config.steps > 0 && config.epochs > 0) {
        return invalid_argument("--epochs",
                                "give --steps or --epochs, not both (--epochs 0 takes back what a file says)");
    }
    std::int64_t steps = config.steps;
    if (config.epochs > 0) {
        const double all = static_cast<double>(config.epochs) * static_cast<double>(rows);
        if (all / static_cast<double>(global_batch) > kStepsMax)
            return invalid_argument("--epochs", "makes more than " + count_text(static_cast<std::int64_t>(kStepsMax)) +
                                                    " steps of " + count_text(rows) + " rows");
        steps = (config.epochs * rows + global_batch - 1) / global_batch;
    } else if (!config.given.contains("steps")) {
        return invalid_argument("--steps", "say how long to train: --steps N or --epochs N");
    }
    const bool is_said = config.given.contains("steps") || config.given.contains("epochs");
    if (config.schedule_run > config.schedule_runs)
        return invalid_argument("--schedule-run", count_text(config.schedule_run) + " is more than --schedule-runs " +
                                                      count_text(config.schedule_runs));
    const std::int64_t needed = (config.warmup_steps + config.schedule_runs - 1) / config.schedule_runs;
    if (is_said && steps > 0 && steps < needed) {
        const std::int64_t all = steps * config.schedule_runs;
        return invalid_argument("--warmup-steps", count_text(config.warmup_steps) + " are more than the " +
                                                      count_text(all) + (all == 1 ? " step" : " steps") + " of the " +
                                                      (config.schedule_runs > 1 ? "runs together" : "run"));
    }
    return steps;
}

Status check_micro_step(std::int64_t rows, std::int64_t seq_len) {
    constexpr std::int64_t kTokensMax = std::int64_t{1} << 31;
    if (rows <= kTokensMax / seq_len) return {};
    return invalid_argument("--batch-size", count_text(rows) + " rows of " + count_text(seq_len) +
                                                " tokens are more than the " + count_text(kTokensMax) +
                                                " that a micro-step takes");
}

Status check_extent(const RunConfig& config, std::int64_t steps, std::int64_t layers) {
    if (config.trace_steps > 0 && config.trace_from > std::max<std::int64_t>(1, steps))
        return invalid_argument("--trace-from",
                                "is step " + count_text(config.trace_from) + " of a run of " + count_text(steps));
    if (config.checkpoint_layers > layers)
        return invalid_argument("--checkpoint-layers", "the model has " + count_text(layers) + " layers");
    return {};
}

Status check_training(const RunConfig& config, int ranks) {
    constexpr std::int64_t kUnknownRows = 1'000'000'000;  // so many that no warm-up is longer than the steps of epochs
    ATOLL_RETURN_IF_ERROR(check_needs(config, kTrain));
    ATOLL_TRY(const BatchPlan batch, plan_batch(config, ranks));
    ATOLL_RETURN_IF_ERROR(plan_steps(config, kUnknownRows, batch.global));
    ATOLL_RETURN_IF_ERROR(plan_shard_group(config, ranks, ranks));
    return {};
}

}  // namespace atl::run_settings
