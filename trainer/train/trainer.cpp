#include "trainer/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "shared/host/node.h"
#include "shared/log/log.h"
#include "shared/log/warn.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/parallel/recompute.h"
#include "trainer/trace/trace.h"
#include "trainer/train/not_finite.h"

namespace atl::train {
namespace {

// Of the wall clock, to the millisecond: for people, nothing is measured by it.
double unix_time_s() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) / 1000;
}

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double sum_over(comm::Comm& comm, double value) {
    comm.all_reduce(std::span(&value, 1), comm::Reduction::kSum);
    return value;
}

double max_over(comm::Comm& comm, double value) {
    comm.all_reduce(std::span(&value, 1), comm::Reduction::kMax);
    return value;
}

// What a rank may wait for the others meanwhile.
class WaitLimit {
  public:
    WaitLimit(comm::Comm& comm, double seconds) : comm_(comm) { comm_.limit_waits(seconds); }
    WaitLimit(const WaitLimit&) = delete;
    WaitLimit& operator=(const WaitLimit&) = delete;
    ~WaitLimit() { comm_.limit_waits(0); }

  private:
    comm::Comm& comm_;
};

// What was there and could be written when the run began is not the user's to mend: the same may be tried again.
Status as_passing(Status failed) {
    if (failed.ok()) return failed;
    Error error = failed.error();
    if (error.code == ErrorCode::kNotFound || error.code == ErrorCode::kPermissionDenied ||
        error.code == ErrorCode::kConflict)
        error.code = ErrorCode::kUnavailable;
    return error;
}

// Rows × tokens of a step: what gradients are scaled by before the number of real targets is known.
double nominal_targets(const PreparedRun& prepared) {
    return static_cast<double>(prepared.batch.global * prepared.seq_len());
}

parallel::StepRules step_rules(const PreparedRun& prepared) {
    const RunConfig& config = prepared.config;
    return {.micro_steps = prepared.batch.accumulation,
            .by_sequence = config.deterministic,
            .nominal_targets = nominal_targets(prepared),
            .gradient_norm_max = config.max_grad_norm,
            .scales_loss = config.scales_loss(),
            .proximal_mu = config.proximal_mu,
            .has_control_variate = config.control_variate > 0,
            .optimizer = prepared.optimizer,
            .decay_norms = !config.no_decay_norms,
            .seed = static_cast<std::uint64_t>(config.seed),
            .has_file = config.offload_optimizer == run_settings::Offload::kNvme};
}

}  // namespace

Trainer::Trainer(PreparedRun& prepared, std::string fingerprint, parallel::RunMemory& memory, kernels::Backend& backend,
                 comm::Comm& comm, const StopRequest& stop, double rank_peak_flops)
    : prepared_(prepared),
      memory_(memory),
      backend_(backend),
      comm_(comm),
      ranks_(comm, memory.store().layout(), backend, prepared.exchange.get()),
      step_(step_rules(prepared), memory, backend, comm, ranks_),
      order_(prepared.data.rows, prepared.config.shuffle == run_settings::OnOff::kOn,
             static_cast<std::uint64_t>(prepared.config.seed)),
      prefetch_(row_reader()),
      stop_(stop),
      peak_flops_(sum_over(comm, rank_peak_flops)),
      output_(prepared, std::move(fingerprint), memory, backend, comm),
      trace_(prepared.config, comm, backend) {
    if (scales_loss()) state_.loss_scale = prepared_.config.loss_scale;
}

Status Trainer::run() {
    started_s_ = saved_s_ = now_s();
    ATOLL_RETURN_IF_ERROR(start());
    return as_passing(train_and_save());
}

Status Trainer::train_and_save() {
    if (stopped_ && !output_.has_state()) ATOLL_RETURN_IF_ERROR(save());
    const Status made = steps();
    if (made.ok()) return finish();
    output_.wait_for_save();
    return made;
}

Status Trainer::start() {
    const WaitLimit limit(comm_, prepared_.config.collective_timeout);
    const double began = now_s();
    ATOLL_RETURN_IF_ERROR(model_io::load_weights(prepared_.directory, memory_.store(), backend_, comm_,
                                                 prepared_.config.broadcast_from_rank0));
    took_.save_s = now_s() - began;
    ATOLL_RETURN_IF_ERROR(output_.open());
    prepared_.directory.close_files();
    memory_.store().clear_moments(backend_);
    if (prepared_.config.proximal_mu > 0) {  // before a state is loaded: the start is the model's
        const Status kept = memory_.proximal_term().set_start(backend_, memory_.store());
        ATOLL_RETURN_IF_ERROR(comm_.agree(parallel::write_outcome(kept)));
    }
    ATOLL_RETURN_IF_ERROR(begin_control_variate());
    ATOLL_RETURN_IF_ERROR(output_.prepare_async());
    if (prepared_.config.resume) {
        ATOLL_TRY(const auto found, output_.load_state());
        state_ = found.value_or(state_);
    }
    if (!prepared_.config.optimizer_from.empty() && !output_.has_state()) {
        ATOLL_TRY(state_.earlier_updates, output_.load_optimizer());
    }
    ATOLL_RETURN_IF_ERROR(output_.check_room(state_.steps));
    ATOLL_RETURN_IF_ERROR(output_.take_over());
    stopped_ = stops_for(stop_.told());
    return {};
}

// The sums may be those of a state, which is loaded later.
Status Trainer::begin_control_variate() {
    if (prepared_.config.control_variate == 0) return {};
    memory_.control_variate().begin(backend_, memory_.store());
    if (!prepared_.control_variate) return {};
    return prepared_.control_variate->load(prepared_.config.control_variate, memory_.store(), memory_.control_variate(),
                                           backend_, comm_);
}

Status Trainer::steps() {
    const kernels::StepScalars carried{.updates = static_cast<double>(state_.updates()),
                                       .loss_scale = state_.loss_scale,
                                       .good_steps = static_cast<double>(state_.good_steps),
                                       .skipped = static_cast<double>(state_.skipped_steps)};
    memory_.scalars().set(backend_, carried);
    if (!stopped_) prefetch_.start(own_rows(state_.steps + 1, 0));
    pace_.emplace(now_s(), state_.steps);
    for (std::int64_t number = state_.steps + 1; number <= prepared_.steps && !stopped_; ++number) {
        trace_.before_step(number);
        std::optional<WaitLimit> limit(std::in_place, comm_, prepared_.config.collective_timeout);
        const bool is_last = number == prepared_.steps, saves = saves_after(number);
        ATOLL_RETURN_IF_ERROR(begin_step(number));
        // A device of its own has the next step to do while the host looks at this one, unless that needs to know of
        // it.
        const bool scales_term = scales_loss() && prepared_.config.proximal_mu > 0;
        const bool at_once =
            backend_.host_reaches_device() || is_last || validates_after(number) || saves || scales_term;
        ATOLL_RETURN_IF_ERROR(print_steps(at_once ? number : number - 1));
        if (!is_last) ATOLL_RETURN_IF_ERROR(watch_save(number));
        const double needed_s = took_.needed_for_step(validates_after(number + 1)) + (saves ? took_.save_s : 0);
        const auto validation = validates_after(number) ? validate() : std::nullopt;
        const bool asked = (validates_after(number) && !validation) || must_stop(needed_s);
        stopped_ = asked && !is_last;
        ATOLL_RETURN_IF_ERROR(print_steps(stopped_ ? number : 0));
        limit.reset();  // one rank may write for long
        if (validation) keep_if_best(*validation);
        if (stopped_ || saves) ATOLL_RETURN_IF_ERROR(output_.saves_aside() && !stopped_ ? begin_save() : save());
        trace_.after_step();
    }
    return {};
}

Status Trainer::print_steps(std::int64_t last) {
    while (state_.steps < last) {
        ATOLL_TRY(StepMetrics metrics, read_step());
        ++state_.steps;
        metrics.eta_s = pace_->step_s(now_s(), last) * static_cast<double>(prepared_.steps - state_.steps);
        report_rates(metrics, took_.step_s);
        metrics.time_unix_s = unix_time_s();
        if (comm_.rank() == 0) print_line(to_json_line(metrics));
    }
    return {};
}

Status Trainer::begin_step(std::int64_t number) {
    const trace::Span span("step", trace::is_on() ? std::to_string(number) : std::string());
    const double rate = prepared_.schedule.rate(number);
    const auto load = [&](std::int64_t micro) {
        const std::int64_t targets = load_rows(memory_, backend_, prefetch_, own_rows(number, micro));
        prefetch_.start(own_rows(number, micro + 1));
        return targets;
    };
    const double waited_s = comm_.waited_s();
    ATOLL_TRY(const auto asked,
              step_.begin({rate, prepared_.embedding_schedule.rate(number)}, state_.loss_scale, load));
    begun_.push_back({number, rate, asked, comm_.waited_s() - waited_s});
    return {};
}

Result<StepMetrics> Trainer::read_step() {
    const BegunStep step = begun_.front();
    begun_.pop_front();
    const std::string name = "step " + std::to_string(step.number);
    const kernels::StepScalars scalars = memory_.scalars().receive(backend_, name);
    if (scalars.has_failed != 0) return not_finite(step.number);
    took_.step_s = step.asked.ended->seconds_since(*step.asked.began);
    const double targets = step.asked.targets;
    StepMetrics metrics;
    metrics.step = step.number;
    metrics.exposed_comm_s = step.waited_s;
    tell_loss(metrics, scalars.loss, static_cast<std::int64_t>(targets));
    metrics.learning_rate = step.learning_rate;
    const bool may_tell = targets >= static_cast<double>(prepared_.config.loss_tokens_min);
    metrics.gradient_norm = may_tell ? scalars.norm : std::numeric_limits<double>::quiet_NaN();
    if (scales_loss()) metrics.loss_scale = state_.loss_scale;
    state_.loss_sum += scalars.loss;
    state_.tokens += static_cast<std::int64_t>(targets);
    state_.loss_scale = scalars.loss_scale;
    state_.good_steps = static_cast<std::int64_t>(scalars.good_steps);
    state_.skipped_steps = static_cast<std::int64_t>(scalars.skipped);
    return metrics;
}

void Trainer::tell_loss(StepMetrics& metrics, double loss_sum, std::int64_t targets) {
    state_.untold_loss += loss_sum;
    state_.untold_tokens += targets;
    if (state_.untold_tokens < std::max<std::int64_t>(1, prepared_.config.loss_tokens_min)) return;
    metrics.loss = state_.final_loss = state_.untold_loss / static_cast<double>(state_.untold_tokens);
    metrics.loss_tokens = state_.untold_tokens;
    state_.untold_loss = 0;
    state_.untold_tokens = 0;
}

Error Trainer::not_finite(std::int64_t number) {
    RowPrefetch again(row_reader());
    const auto load = [&](std::int64_t micro) {
        again.start(own_rows(number, micro));
        return load_rows(memory_, backend_, again, own_rows(number, micro));
    };
    const auto make_gradients = [&] { static_cast<void>(step_.make_gradients(state_.loss_scale, load)); };
    const std::string where =
        find_not_finite(memory_, backend_, ranks_, prepared_.batch.accumulation, load, make_gradients);
    const Error error{ErrorCode::kTooLarge,
                      "the loss or its gradient is not finite at step " + std::to_string(number) + ": " + where +
                          "; try a lower lr or max_grad_norm, or more warmup_steps",
                      ""};
    return comm_.agree(error).error();  // one rank tells
}

RowPrefetch::Read Trainer::row_reader() const {
    return [this](const RowRange& range, dataset::Batch& batch) {
        return prepared_.data.dataset.read(order_, range.begin, range.count, batch);
    };
}

RowRange Trainer::own_rows(std::int64_t step, std::int64_t micro) const {
    const run_settings::BatchPlan& plan = prepared_.batch;
    if (micro == plan.accumulation) return own_rows(step + 1, 0);
    if (step > prepared_.steps) return {};
    const std::int64_t begin = (step - 1) * plan.global;
    const parallel::ParallelLayout& layout = ranks_.layout();
    const std::int64_t own = prepared_.config.deterministic
                                 ? micro * layout.data_ranks() + layout.data_rank()
                                 : (layout.data_rank() * plan.accumulation + micro) * plan.micro;
    return {begin + own, plan.micro};
}

std::int64_t Trainer::peak_bytes() const {
    return static_cast<std::int64_t>(max_over(comm_, static_cast<double>(host::resident_peak_bytes())));
}

void Trainer::report_rates(StepMetrics& metrics, double step_s) {
    std::array<double, 3> most = {static_cast<double>(host::resident_peak_bytes()), metrics.exposed_comm_s, step_s};
    comm_.all_reduce(most, comm::Reduction::kMax);
    metrics.peak_bytes = static_cast<std::int64_t>(most[0]);
    metrics.exposed_comm_s = most[1];
    metrics.step_s = step_s = most[2];
    metrics.tokens_per_s = nominal_targets(prepared_) / step_s;
    metrics.samples_per_s = static_cast<double>(prepared_.batch.global) / step_s;
    const double forward = prepared_.directory.model.forward_flops({prepared_.batch.global, prepared_.seq_len()});
    // Forward, the gradient of the activations, and that of the weights unless they are frozen.
    const double passes = prepared_.directory.adapters ? 2 : 3;
    metrics.tflops = passes * forward / (step_s * comm_.size() * 1e12);
    if (peak_flops_ <= 0) return;
    metrics.mfu = passes * forward / (step_s * peak_flops_);
    const double again =
        parallel::recomputed_flops({prepared_.config.activation_checkpointing, prepared_.config.checkpoint_layers},
                                   prepared_.directory.model, {prepared_.batch.global, prepared_.seq_len()});
    metrics.hfu = metrics.mfu * (1 + again / (passes * forward));
}

bool Trainer::validates_after(std::int64_t step) const {
    return prepared_.validation && (prepared_.is_after(prepared_.config.eval_every, step) || step == prepared_.steps);
}

bool Trainer::saves_after(std::int64_t step) const {
    return (prepared_.is_after(prepared_.config.save_every, step) || is_save_due_) && step < prepared_.steps;
}

bool Trainer::must_stop(double needed_s) {
    if (output_.is_saving()) needed_s += took_.save_s;
    return stops_for(stop_.wanted(prepared_.config.time_limit, needed_s));
}

bool Trainer::stops_for(StopCause mine) {
    const double interval = prepared_.config.save_interval;
    const bool is_due = interval > 0 && now_s() - saved_s_ >= interval;
    std::array<double, 2> most = {static_cast<double>(mine), is_due ? 1.0 : 0.0};
    comm_.all_reduce(most, comm::Reduction::kMax);
    stop_cause_ = static_cast<StopCause>(most[0]);
    is_save_due_ = most[1] > 0;
    return stop_cause_ != StopCause::kNone;
}

void Trainer::tell_stop() const {
    spdlog::info("stopped by {} after step {} of {}; its state is in {}: the same command with --resume goes on",
                 to_string(stop_cause_), state_.steps, prepared_.steps, output_.state_directory().string());
}

std::optional<Perplexity> Trainer::validate() {
    const trace::Span span("validate");
    const double began = now_s();
    const auto stop = [&](double longest_s) { return must_stop(took_.needed_for_batch(longest_s)); };
    const auto perplexity =
        evaluate_unless(stop, memory_, backend_, ranks_, *prepared_.validation, prepared_.batch.micro);
    took_.validation_s = now_s() - began;
    if (comm_.rank() != 0) return perplexity;
    if (perplexity && perplexity->tokens < prepared_.config.loss_tokens_min) {
        log::warn("the validation after step " + std::to_string(state_.steps) + " has " +
                  std::to_string(perplexity->tokens) + " target tokens, fewer than --loss-tokens-min: it is not told");
    } else if (perplexity) {
        print_line(to_json_line(state_.steps, *perplexity));
    } else {
        log::warn("the validation after step " + std::to_string(state_.steps) +
                  " is left out: the run was asked to stop; `eval` does it on a saved model");
    }
    return perplexity;
}

// What cannot be written costs the run nothing: the next better model is tried.
void Trainer::keep_if_best(const Perplexity& validation) {
    if (!prepared_.config.save_best || validation.tokens < prepared_.config.loss_tokens_min) return;
    if (!std::isfinite(validation.loss) || (state_.best_step > 0 && validation.loss >= state_.best_loss)) return;
    const Status kept = output_.save_best();
    if (kept.ok()) {
        state_.best_step = state_.steps;
        state_.best_loss = validation.loss;
    } else if (!kept.error().message.empty()) {
        log::warn("the model after step " + std::to_string(state_.steps) +
                  " has the lowest validation loss so far and cannot be kept: " + describe(kept.error()));
    }
}

checkpoint::TrainerState Trainer::state_now() const {
    checkpoint::TrainerState state = state_;
    state.wall_s += now_s() - started_s_;
    return state;
}

void Trainer::begin_interval() {
    saved_s_ = now_s();
    is_save_due_ = false;
}

void Trainer::note_save_time() {
    if (output_.save_s() > 0) took_.save_s = output_.save_s();
}

Status Trainer::save() {
    Status saved = output_.save(state_now());
    begin_interval();
    note_save_time();
    return saved;
}

Status Trainer::begin_save() {
    Status begun = output_.begin_save(state_now());
    begin_interval();
    note_save_time();
    return begun;
}

// A state that could not be written beside the steps: the one of this step is written in its place.
Status Trainer::watch_save(std::int64_t number) {
    const Status written = output_.progress();
    note_save_time();
    if (written.ok()) return {};
    ATOLL_RETURN_IF_ERROR(print_steps(number));
    comm_.limit_waits(0);  // one rank may write for long
    return save();
}

Status Trainer::finish() {
    output_.wait_for_save();
    const Status saved = stopped_ ? Status() : output_.save_result(state_now());
    if (!saved.ok()) return keep_unsaved(saved);
    const Summary made = summary();
    if (comm_.rank() == 0) {
        print_line(to_json_line(made));
        if (stopped_) tell_stop();
    }
    return output_.record(made, stopped_);
}

Status Trainer::keep_unsaved(const Status& failed) {
    const RunOutput::Kept kept = output_.keep_unsaved(failed, state_now());
    stopped_ = kept.is_resumable;
    const Summary made = summary();
    if (kept.is_final && comm_.rank() == 0) print_line(to_json_line(made));
    return kept.outcome;
}

Summary Trainer::summary() const {
    Summary summary;
    summary.steps = state_.steps;
    summary.samples = state_.steps * prepared_.batch.global;
    summary.tokens = state_.tokens;
    if (const std::int64_t told = state_.tokens - state_.untold_tokens; told > 0) {
        summary.loss = (state_.loss_sum - state_.untold_loss) / static_cast<double>(told);
        summary.final_loss = state_.final_loss;
    }
    summary.wall_s = state_.wall_s + now_s() - started_s_;
    summary.tokens_per_s = static_cast<double>(state_.steps) * nominal_targets(prepared_) / summary.wall_s;
    summary.peak_tflops = peak_flops_ / comm_.size() / 1e12;
    summary.peak_bytes = peak_bytes();
    summary.resumable = stopped_;
    if (scales_loss()) summary.loss_scale = state_.loss_scale;
    summary.skipped_steps = state_.skipped_steps;
    summary.earlier_updates = state_.earlier_updates;
    summary.best_step = state_.best_step;
    summary.best_val_loss = state_.best_loss;
    summary.optimizer_anew = !prepared_.config.optimizer_if_named.empty() && state_.earlier_updates == 0;
    summary.rounding_error_anew = output_.begins_without_error();
    summary.control_variate_anew = prepared_.control_variate && prepared_.control_variate->begins_anew();
    return summary;
}

}  // namespace atl::train
