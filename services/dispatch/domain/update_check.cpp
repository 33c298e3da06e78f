#include "services/dispatch/domain/update_check.h"

#include <algorithm>
#include <cstdio>

#include "services/dispatch/domain/training_settings.h"
#include "shared/delta/delta.h"
#include "shared/run_settings/schedule.h"

namespace atl::dispatch {
namespace {

using json::Json;

Status check_count(const std::optional<std::int64_t>& count, const std::string& key, double max, std::int64_t steps) {
    if (!count) return invalid_argument(key, "the trainer's summary must give \"" + key + "\" as an integer from 0");
    if (*count == 0 && steps > 0)
        return invalid_argument(key, "the trainer's summary says 0 " + key + ", but its settings make " +
                                         std::to_string(steps) + " steps: each sees some");
    if (static_cast<double>(*count) <= max) return {};
    char limit[32];
    std::snprintf(limit, sizeof limit, "%.0f", max);
    return invalid_argument(key, "the trainer's summary says " + std::to_string(*count) + " " + key +
                                     ", but its settings and its dataset version allow " + limit + " at most");
}

// Steps of a training that has so many rows.
std::int64_t steps_with(const run_settings::RunConfig& config, const UpdateLimits& limits, std::int64_t rows) {
    if (config.epochs <= 0) return limits.steps;
    const std::int64_t a_step = limits.samples_per_step;
    const double all = static_cast<double>(config.epochs) * static_cast<double>(rows);
    if (all / static_cast<double>(a_step) >= static_cast<double>(limits.steps)) return limits.steps;
    return (config.epochs * rows + a_step - 1) / a_step;
}

// How many times the usual rate that of embedding and head is; 1 where it is lower.
double embedding_ratio(const run_settings::RunConfig& config) {
    return config.lr > 0 ? std::max(1.0, config.lr_embedding / config.lr) : 1;
}

bool holds_change(const Json& manifest) {
    const auto files = manifest.is_object() ? manifest.find("files") : manifest.end();
    return files != manifest.end() && std::any_of(files->begin(), files->end(), [](const Json& file) {
               return file.is_object() && file.value("path", Json()) == delta::kFile;
           });
}

}  // namespace

Result<UpdateLimits> update_limits(const Json& training, std::int64_t ranks, std::int64_t rows, std::int64_t seq_len) {
    ATOLL_TRY(const run_settings::RunConfig config, parse_training_settings(training, "training"));
    ATOLL_TRY(const run_settings::BatchPlan batch, run_settings::plan_batch(config, static_cast<int>(ranks)));
    ATOLL_TRY(const std::int64_t steps, run_settings::plan_steps(config, rows, batch.global));
    const double samples = static_cast<double>(steps) * static_cast<double>(batch.global);
    return UpdateLimits{samples, samples * static_cast<double>(seq_len), steps, batch.global};
}

aggregate::Assignment assigned_work(const Json& training, std::int64_t ranks, const DatasetSize& own,
                                    const BelievedSize& believed) {
    const auto config = parse_training_settings(training, "training");
    const auto limits = update_limits(training, ranks, own.rows, own.seq_len);
    if (!config.ok() || !limits.ok()) return {};
    const auto steps = [&](std::int64_t rows) { return steps_with(*config, *limits, std::min(own.rows, rows)); };
    aggregate::Assignment work;
    const auto effort = [&](std::int64_t count) { return run_settings::schedule_of(*config, count).sum(count); };
    const double whole = effort(limits->steps);
    work.effort = effort(steps(believed.compared_rows));
    if (work.effort > 0) work.claimed = std::max(1.0, whole / work.effort);
    work.tokens = static_cast<double>(steps(believed.weighed.rows) * limits->samples_per_step) *
                  static_cast<double>(std::min(own.seq_len, believed.weighed.seq_len));
    // AdamW moves an element by about its rate a step, however large its gradient is, and Muon by less on average; SGD
    // moves all of them together by no more than its rate times the gradient's largest norm, which its momentum adds
    // up.
    if (config->optimizer != run_settings::OptimizerKind::kSgd)
        work.element_max = whole * embedding_ratio(*config);
    else
        work.norm_max = whole * embedding_ratio(*config) * config->max_grad_norm / (1 - config->momentum);
    work.decay = whole * config->weight_decay;
    return work;
}

Status check_counts(const SummaryLine& summary, const UpdateLimits& limits) {
    ATOLL_RETURN_IF_ERROR(check_count(summary.samples, "samples", limits.samples, limits.steps));
    return check_count(summary.tokens, "tokens", limits.tokens, limits.steps);
}

Status check_ranks(const SummaryLine& summary, const UpdateLimits& limits, std::int64_t ranks) {
    if (!summary.samples || !summary.steps || *summary.steps > limits.steps) return {};
    const std::int64_t expected = *summary.steps * limits.samples_per_step;
    if (*summary.samples >= expected) return {};
    return invalid_argument("samples", "the trainer saw " + std::to_string(*summary.samples) + " samples in " +
                                           std::to_string(*summary.steps) + " steps, where the " +
                                           std::to_string(ranks) + " ranks that were asked for see " +
                                           std::to_string(expected) +
                                           ": fewer have started (`atoll facility check NAME --job` tells)");
}

Status check_version(const Json& version, const std::string& base, bool may_be_change) {
    json::ObjectReader reader(version);
    const std::string digest = reader.string_or("digest", "");
    const std::string kind = reader.string_or("kind", "");
    const Json& parents = reader.array_or_null("parents");
    const Json& manifest = reader.object_or_null("manifest");
    reader.allow_unknown();
    if (const Status read = reader.finish(); !read.ok())
        return internal_error("what the store says of the version that was pushed cannot be read: " +
                              describe(read.error()));
    // A training that changed nothing hands in the base itself, which keeps its own kind and parents.
    if (digest == base) return {};
    if (kind != "update" && kind != "global") return conflict("the version that was pushed is no update in the store");
    if (parents != Json::array({base}))
        return conflict("the update that was pushed has the parents " + parents.dump() + ", not the base " + base);
    if (!may_be_change && holds_change(manifest))
        return conflict(std::string("the update that was pushed has ") + delta::kFile +
                        ", the change of the model alone, which is what trainings with an update_format write: this "
                        "job has none");
    return {};
}

}  // namespace atl::dispatch
