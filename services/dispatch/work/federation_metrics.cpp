#include "services/dispatch/work/federation_metrics.h"

#include <algorithm>

#include "services/dispatch/db/sql.h"
#include "services/dispatch/metrics.h"

namespace atl::dispatch {
namespace {

std::int64_t nodes_of(const Task& task) {
    const auto* train = std::get_if<TrainParams>(&task.params);
    return train != nullptr ? train->resources.nodes : 1;
}

const char* direction_of(Step transfer) {
    return transfer == Step::kStaging ? "in" : "out";
}

// A transfer that was seen under way counts as it moves; one that was over before, when its phase has ended.
void count_bytes(const Task& task, const Attempt& before, const Attempt& after, metrics::Registry& metrics) {
    std::int64_t until = after.bytes_done;
    if (before.step != after.step) {
        until = is_lost(after.step) ? before.bytes_done : before.bytes_total;
        if (before.bytes_total == 0 && !after.phases.empty()) until = after.phases.back().bytes;
    }
    if (!is_transfer(before.step) || until <= before.bytes_done) return;
    metrics
        .counter(kMetrics["atoll_transfer_bytes_total"],
                 {{"facility", task.facility}, {"direction", direction_of(before.step)}})
        .Increment(static_cast<double>(until - before.bytes_done));
}

// The attempt has left `before`.
void count_phase(const Task& task, const Attempt& before, const Attempt& after, std::int64_t now_ms,
                 metrics::Registry& metrics) {
    if (!is_phase(before.step) || before.since_ms == 0) return;
    const double time_s = static_cast<double>(std::max<std::int64_t>(now_ms - before.since_ms, 0)) / 1000;
    if (is_transfer(before.step))
        metrics
            .counter(kMetrics["atoll_transfer_seconds_total"],
                     {{"facility", task.facility}, {"direction", direction_of(before.step)}})
            .Increment(time_s);
    metrics
        .counter(kMetrics["atoll_phase_seconds_total"],
                 {{"facility", task.facility}, {"phase", to_string(before.step)}})
        .Increment(time_s);
    if (before.step == Step::kQueued && !is_lost(after.step))
        metrics.histogram(kMetrics["atoll_queue_wait_seconds"], {{"facility", task.facility}}).Observe(time_s);
    if (before.step == Step::kRunning)
        metrics
            .counter(kMetrics["atoll_node_seconds_total"],
                     {{"facility", task.facility}, {"outcome", is_lost(after.step) ? "lost" : "used"}})
            .Increment(time_s * static_cast<double>(nodes_of(task)));
}

void count_end(const Task& task, metrics::Registry& metrics) {
    metrics
        .counter(kMetrics["atoll_tasks_ended_total"],
                 {{"facility", task.facility}, {"kind", to_string(task.kind())}, {"outcome", to_string(task.state)}})
        .Increment();
    if (task.kind() == TaskKind::kTrain && task.state == TaskState::kDone && check_training_result(task.result).ok())
        metrics.counter(kMetrics["atoll_training_tokens_total"], {{"facility", task.facility}})
            .Increment(task.result.at("tokens").get<double>());
}

std::optional<double> exposed_ratio(const StepLine& line) {
    if (!line.exposed_comm_s || line.step_s.value_or(0) <= 0) return std::nullopt;
    return std::clamp(*line.exposed_comm_s / *line.step_s, 0.0, 1.0);
}

// The row's series of each training; nothing where the line does not say.
template <class Member>
std::vector<metrics::Sample> newest(const FederationState& state, Member member) {
    std::vector<metrics::Sample> samples;
    for (const auto& training : state.trainings)
        if (const auto value = member(training.newest))
            samples.push_back(
                {{{"facility", training.facility}, {"atoll_job", training.job}}, static_cast<double>(*value)});
    return samples;
}

void show_trainings(const FederationState& state, metrics::Registry& metrics) {
    const auto set = [&](const Metric& metric, auto member) { metrics.set_all(metric, newest(state, member)); };
    set(kMetrics["atoll_training_loss"], [](const StepLine& line) { return line.loss; });
    set(kMetrics["atoll_training_gradient_norm"], [](const StepLine& line) { return line.grad_norm; });
    set(kMetrics["atoll_training_step"], [](const StepLine& line) { return std::optional(line.step); });
    set(kMetrics["atoll_training_tokens_per_second"], [](const StepLine& line) { return line.tokens_per_s; });
    set(kMetrics["atoll_training_mfu_ratio"], [](const StepLine& line) { return line.mfu; });
    set(kMetrics["atoll_training_exposed_communication_ratio"], exposed_ratio);
    set(kMetrics["atoll_training_eta_seconds"], [](const StepLine& line) { return line.eta_s; });
    set(kMetrics["atoll_training_peak_memory_bytes"], [](const StepLine& line) { return line.peak_bytes; });
    set(kMetrics["atoll_training_sample_timestamp_seconds"], [](const StepLine& line) { return line.time_unix_s; });
}

}  // namespace

void show(const FederationState& state, metrics::Registry& metrics) {
    metrics.set_all(kMetrics["atoll_tasks"], state.tasks);
    metrics.set_all(kMetrics["atoll_tasks_waiting"], state.waiting);
    metrics.set_all(kMetrics["atoll_rounds"], state.rounds);
    metrics.set_all(kMetrics["atoll_round_age_seconds"], state.round_ages_s);
    metrics.set_all(kMetrics["atoll_facility_up"], state.facilities_up);
    metrics.set_all(kMetrics["atoll_facility_silent_seconds"], state.facilities_silent_s);
    metrics.set_all(kMetrics["atoll_facility_batch_system_up"], state.batch_systems_up);
    metrics.set_all(kMetrics["atoll_model_perplexity"], state.perplexities);
    metrics.gauge(kMetrics["atoll_round_age_ratio"]).Set(state.round_age_ratio);
    metrics.gauge(kMetrics["atoll_due_tasks"]).Set(state.due_tasks);
    metrics.gauge(kMetrics["atoll_due_task_age_seconds"]).Set(state.due_task_age_s);
    metrics.set_all(kMetrics["atoll_job_expected_end_timestamp_seconds"], state.expected_ends_s);
    metrics.set_all(kMetrics["atoll_job_round"], state.job_rounds);
    show_trainings(state, metrics);
}

void show(const std::vector<StateCount>& counts, metrics::Registry& metrics) {
    std::vector<metrics::Sample> jobs;
    for (const auto& [what, state, count] : counts)
        if (what == "jobs" && (state == "running" || state == "paused"))
            jobs.push_back({{{"state", state}}, static_cast<double>(count)});
    metrics.set_all(kMetrics["atoll_jobs"], jobs);
}

void count_step(const Task& before, const Task& after, std::int64_t now_ms, metrics::Registry& metrics) {
    if (before.attempt && after.attempt && before.attempt->number == after.attempt->number) {
        count_bytes(before, *before.attempt, *after.attempt, metrics);
        if (before.attempt->step != after.attempt->step)
            count_phase(before, *before.attempt, *after.attempt, now_ms, metrics);
        // There before the first failure: what begins at 1 has not grown.
        auto& failed = metrics.counter(kMetrics["atoll_attempts_failed_total"], {{"facility", after.facility}});
        if (after.attempt->step == Step::kFailed && before.attempt->step != Step::kFailed) failed.Increment();
    }
    if (is_finished(after.state) && !is_finished(before.state)) count_end(after, metrics);
}

Status EndCounter::look(pg::Connection& connection, metrics::Registry& metrics) {
    if (!since_ms_) {
        ATOLL_TRY(since_ms_, database_now_ms(connection));
        for (const char* outcome : {"completed", "failed", "cancelled"})
            metrics.counter(kMetrics["atoll_jobs_ended_total"], {{"outcome", outcome}});
    }
    ATOLL_RETURN_IF_ERROR(look_at_rounds(connection, metrics));
    return look_at_jobs(connection, metrics);
}

Status EndCounter::look_at_jobs(pg::Connection& connection, metrics::Registry& metrics) {
    ATOLL_TRY(const auto ended, ended_jobs(connection, *since_ms_));
    for (const EndedJob& one : ended)
        if (!counted_jobs_.contains(one))
            metrics.counter(kMetrics["atoll_jobs_ended_total"], {{"outcome", one.outcome}}).Increment();
    counted_jobs_ = {ended.begin(), ended.end()};
    return {};
}

Status EndCounter::look_at_rounds(pg::Connection& connection, metrics::Registry& metrics) {
    ATOLL_TRY(const auto ended, ended_phases(connection, *since_ms_));
    for (const EndedPhase& one : ended) {
        if (counted_.contains(one)) continue;
        if (one.phase == "aggregating") {
            ATOLL_TRY(const auto updates, count_updates(connection, one.job, one.round));
            for (const auto& [facility, outcome, count] : updates)
                metrics.counter(kMetrics["atoll_round_updates_total"], {{"facility", facility}, {"outcome", outcome}})
                    .Increment(static_cast<double>(count));
        }
        metrics.histogram(kMetrics["atoll_round_seconds"], {{"phase", one.phase}}).Observe(one.seconds);
        counted_.insert(one);
    }
    counted_ = {ended.begin(), ended.end()};
    return {};
}

}  // namespace atl::dispatch
