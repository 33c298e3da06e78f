#include "services/dispatch/domain/round_machine.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "services/dispatch/domain/evaluation_result.h"
#include "services/dispatch/domain/model_guard.h"
#include "services/dispatch/domain/round_steps.h"
#include "services/dispatch/domain/training_settings.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::size_t kAbsenceBytesMax = 400;
constexpr std::int64_t kOpenEvaluationsMax = 4000;  // of a job, beside those of its newest model

DomainEvent make_event(const JobView& job, const char* type, Json data) {
    data["job"] = job.id;
    data["name"] = job.spec.name;
    return {type, std::move(data)};
}

}  // namespace

void add_event(JobDecision& decision, const JobView& job, const char* type, Json data) {
    decision.events.push_back(make_event(job, type, std::move(data)));
}

namespace {

// Ends the job: what still runs is cancelled, and each facility is cleaned up once it is quiet there.
void end_job(JobDecision& decision, const JobView& job, JobState state, const std::string& error) {
    decision.job_state = state;
    decision.job_error = error;
    for (const auto& task : job.tasks)
        if (!is_finished(task.state)) decision.cancelled_tasks.push_back(task.id);
    std::set<std::string> facilities;
    for (const auto& participant : job.spec.participants) facilities.insert(participant.data.facility);
    for (const auto& copy : job.spec.evaluation_copies) facilities.insert(copy.facility);
    for (const auto& facility : facilities) {
        Task task = cleaning_task(facility);
        task.round = job.round.number;
        decision.new_tasks.push_back(std::move(task));
    }
    const std::string type = std::string("atoll.job.") + to_string(state) + ".v1";
    Json data = {{"round", job.round.number}};
    if (!error.empty()) data["error"] = error;
    if (state == JobState::kCompleted) data["version"] = job.round.version;
    add_event(decision, job, type.c_str(), std::move(data));
}

void fail_round(JobDecision& decision, const JobView& job, const std::string& error) {
    Round round = job.round;
    round.state = RoundState::kFailed;
    round.error = error;
    decision.rounds.push_back(std::move(round));
    end_job(decision, job, JobState::kFailed, error);
}

bool is_late(const JobView& job, std::optional<std::int64_t> deadline_ms, std::int64_t now_ms) {
    return job.state != JobState::kPaused && deadline_ms && now_ms >= *deadline_ms;
}

// Whether those tasks that are not done are all at sites that have been silent for the grace.
bool only_silent_are_left(const JobView& job, const std::vector<const Task*>& tasks, std::int64_t grace_s,
                          std::int64_t now_ms) {
    return std::all_of(tasks.begin(), tasks.end(), [&](const Task* task) {
        if (is_finished(task->state)) return true;
        const auto silent = job.waiting_since_ms.find(task->facility);
        return job.state != JobState::kPaused && silent != job.waiting_since_ms.end() &&
               now_ms >= silent->second + grace_s * 1000;
    });
}

// What a task was doing when it was no longer waited for, and what kept it.
std::string delay_text(const JobView& job, const Task& task, std::int64_t now_ms) {
    const auto silent = job.waiting_since_ms.find(task.facility);
    if (silent != job.waiting_since_ms.end()) {
        const double silent_s = static_cast<double>(now_ms - silent->second) / 1000;
        const std::string why = task.attempt ? task.attempt->error : "";
        return "the site has not answered for " + human_seconds(silent_s) + (why.empty() ? "" : ": " + why);
    }
    if (!task.attempt) return std::string("it was ") + to_string(task.state);
    const Attempt& attempt = *task.attempt;
    const std::string was = std::string("it was ") + to_string(attempt.step);
    if (attempt.waiting)
        return was + " and had waited since " + utc_text(attempt.waiting->since_ms) + ": " + attempt.waiting->reason;
    if (attempt.queue_reason.empty()) return was;
    return was + " and had waited since " + utc_text(attempt.queue_reason_since_ms) + ": " + attempt.queue_reason;
}

// Ends the wait for those tasks of a round that are not done, and says what they were at.
void go_on_without(JobDecision& decision, const JobView& job, const std::vector<const Task*>& tasks, const char* what,
                   std::int64_t now_ms) {
    for (const Task* task : tasks) {
        if (is_finished(task->state)) continue;
        std::string why =
            shorten(std::string(what) + " went on without it: " + delay_text(job, *task, now_ms), kAbsenceBytesMax);
        Json data = {{"task", task->id},
                     {"kind", to_string(task->kind())},
                     {"round", task->round},
                     {"facility", task->facility},
                     {"error", why}};
        if (task->attempt) data["attempt"] = task->attempt->number;
        if (const auto* evaluate = std::get_if<EvaluateParams>(&task->params)) data["dataset"] = evaluate->dataset;
        add_event(decision, job, "atoll.task.cancelled.v1", std::move(data));
        decision.cancelled_tasks.push_back(task->id);
        decision.reasons[task->id] = std::move(why);
    }
}

// Every round trains on another order of the rows, and at the rate that lr_round_schedule gives it. Where each warms up
// again, a warm-up that began at rate 0 would cost a step in every round.
Json round_settings(const JobSpec& spec, const Participant& participant, const Round& round) {
    Json settings = settings_of(spec, participant, round.index);
    settings["seed"] = settings.value("seed", std::int64_t{0}) + round.number - 1;
    if (settings.value("warmup_steps", std::int64_t{0}) > 0) settings.emplace("warmup_from_zero", "off");
    return settings;
}

}  // namespace

Task training_task(const JobView& job, std::size_t place, const Round& round) {
    const Participant& participant = job.spec.participants[place];
    Task task;
    task.round = round.number;
    task.facility = participant.data.facility;
    task.attempts_max = job.spec.attempts_max;
    const auto record = job.records.find(task.facility);
    task.params = TrainParams{.base = round.base,
                              .output_model = job.spec.output_model,
                              .output_owner = job.spec.output_owner,
                              .dataset = participant.data.dataset,
                              .dataset_version = participant.data.version,
                              .path = participant.data.path,
                              .rows = participant.data.rows,
                              .seq_len = participant.data.seq_len,
                              .fingerprint = participant.data.fingerprint,
                              .resources = participant.resources,
                              .participant = static_cast<std::int64_t>(place),
                              .training = round_settings(job.spec, participant, round),
                              .state_round = record == job.records.end() ? 0 : record->second.counted_round,
                              .counts_tokens = job.spec.strategy.weighs_rows,
                              .control_variate = job.spec.strategy.control_variate.value_or(0),
                              .model = job.spec.adapter_of};
    return task;
}

void tell_opened(JobDecision& decision, const JobView& job, const Round& round) {
    add_event(decision, job, "atoll.round.opened.v1",
              {{"round", round.number}, {"index", round.index}, {"rounds", job.spec.rounds}, {"base", round.base}});
}

void open_round(JobDecision& decision, const JobView& job, std::int64_t number, const Round& from,
                std::int64_t now_ms) {
    Round round;
    round.number = number;
    round.index = from.index + 1;
    round.parent = from.number;
    round.base = from.version;
    round.deadline_ms = now_ms + job.spec.round_deadline_s * 1000;
    decision.rounds.push_back(round);
    for (std::size_t i = 0; i < job.spec.participants.size(); ++i)
        if (!is_passed_over(job, job.spec.participants[i].data.facility))
            decision.new_tasks.push_back(training_task(job, i, round));
    tell_passed_over(decision, job, round.number);
    tell_opened(decision, job, round);
}

namespace {

// A closed round with what evaluates its models.
void evaluate_round(JobDecision& decision, const JobView& job, Round round, const std::vector<EvaluatedModel>& models,
                    std::int64_t now_ms) {
    const auto copies = evaluation_copies(job);
    round.evaluated = copies.empty();
    round.closed_ms = now_ms;
    round.evaluate_by_ms = now_ms + job.spec.round_deadline_s * 1000;
    decision.rounds.push_back(round);
    for (const auto& copy : copies) {
        Task task;
        task.round = round.number;
        task.facility = copy.facility;
        task.attempts_max = job.spec.attempts_max;
        task.params = EvaluateParams{.dataset = copy.dataset,
                                     .path = copy.path,
                                     .models = models,
                                     .tokens_max = copy.validation_tokens,
                                     .fingerprint = copy.fingerprint,
                                     .model = job.spec.adapter_of,
                                     .quantize = job.spec.training.value("quantize", ""),
                                     .samples_max = job.spec.validation_samples};
        decision.new_tasks.push_back(std::move(task));
    }
}

}  // namespace

std::vector<const Task*> round_tasks(const JobView& job, TaskKind kind, std::int64_t round) {
    std::vector<const Task*> tasks;
    for (const auto& task : job.tasks)
        if (task.kind() == kind && task.round == round) tasks.push_back(&task);
    return tasks;
}

namespace {

// What is evaluated on: an evaluation there that is tried again has several tasks.
using EvaluationPlace = std::tuple<std::string, std::string, std::string>;

EvaluationPlace place_of(const Task& task) {
    const auto& evaluate = std::get<EvaluateParams>(task.params);
    return {task.facility, evaluate.dataset, evaluate.path};
}

}  // namespace

std::vector<const Task*> lost_evaluations(const std::vector<const Task*>& evaluations) {
    std::set<EvaluationPlace> known;
    for (const Task* task : evaluations)
        if (task->state == TaskState::kDone || !is_finished(task->state)) known.insert(place_of(*task));
    std::vector<const Task*> lost;
    for (const Task* task : evaluations)
        if (is_finished(task->state) && known.insert(place_of(*task)).second) lost.push_back(task);
    return lost;
}

Json failed_evaluations(const std::vector<const Task*>& evaluations,
                        const std::map<std::string, std::string>& reasons) {
    std::set<EvaluationPlace> places, done, failed, partly;
    for (const Task* task : evaluations) {
        places.insert(place_of(*task));
        if (task->state == TaskState::kDone) done.insert(place_of(*task));
    }
    std::string reason;
    for (const Task* task : evaluations) {
        std::string why = tell_failed_models(*task);
        if (task->state == TaskState::kDone && !why.empty()) partly.insert(place_of(*task));
        if (why.empty() && done.contains(place_of(*task))) continue;
        failed.insert(place_of(*task));
        const auto given = reasons.find(task->id);
        if (why.empty()) why = task->error.empty() && given != reasons.end() ? given->second : task->error;
        if (reason.empty()) reason = std::move(why);
    }
    if (failed.empty()) return {};
    Json told = {{"count", failed.size()}, {"of", places.size()}, {"reason", shorten(reason, kAbsenceBytesMax)}};
    if (!partly.empty()) told["partly"] = partly.size();
    return told;
}

std::vector<const Task*> handed_in_updates(const JobView& job) {
    auto tasks = round_tasks(job, TaskKind::kTrain, job.round.number);
    std::erase_if(tasks, [](const Task* task) { return task->state != TaskState::kDone; });
    std::sort(tasks.begin(), tasks.end(), [](const Task* a, const Task* b) {
        return std::get<TrainParams>(a->params).participant < std::get<TrainParams>(b->params).participant;
    });
    return tasks;
}

namespace {

// Has the round wait for the aggregation; what is to tell that of what the round is made.
DomainEvent ask_aggregation(JobDecision& decision, const JobView& job, Round round, std::int64_t now_ms) {
    JobView closed = job;
    closed.round = round;
    round.ask_again_ms = now_ms + kAggregationPatience_s * 1000;
    decision.rounds.push_back(std::move(round));
    return {"atoll.round.closed.v1", closed_round(closed)};
}

void close_training(JobDecision& decision, const JobView& job, std::int64_t now_ms) {
    go_on_without(decision, job, round_tasks(job, TaskKind::kTrain, job.round.number), "the round", now_ms);
    Round round = job.round;
    round.state = RoundState::kAggregating;
    for (const Task* task : handed_in_updates(job)) round.accepted.push_back(task->id);
    decision.events.push_back(ask_aggregation(decision, job, std::move(round), now_ms));
}

// Fails the round at its deadline; the error and each training that is ended say what kept it.
void fail_late_round(JobDecision& decision, const JobView& job, const std::vector<const Task*>& tasks,
                     std::int64_t done, std::int64_t now_ms) {
    constexpr int kNamedMax = 3;  // the error has to fit into an event, and before people
    const std::string passed = "round " + std::to_string(job.round.number) + " passed its deadline";
    std::string error = passed + " with " + std::to_string(done) + " of " + updates_text(needed_by_round(job));
    int unfinished = 0;
    for (const Task* task : tasks) {
        if (is_finished(task->state)) continue;
        const std::string delay = delay_text(job, *task, now_ms);
        decision.reasons[task->id] = shorten(passed + ": " + delay, kAbsenceBytesMax);
        if (++unfinished <= kNamedMax) error += "; " + task->facility + ": " + shorten(delay, kAbsenceBytesMax);
    }
    if (unfinished > kNamedMax) error += "; and " + std::to_string(unfinished - kNamedMax) + " more";
    fail_round(decision, job, error);
}

void advance_training(JobDecision& decision, const JobView& job, std::int64_t now_ms) {
    const auto tasks = round_tasks(job, TaskKind::kTrain, job.round.number);
    const auto [done, unfinished, silent] = count_tasks(job, tasks);
    const std::int64_t needed = needed_by_round(job);
    Round round = job.round;
    const std::int64_t grace_s = job.spec.grace_s;
    if (done >= needed) round.deadline_ms = std::min(round.deadline_ms.value_or(INT64_MAX), now_ms + grace_s * 1000);
    const bool late = is_late(job, round.deadline_ms, now_ms);
    if (done + unfinished < needed) {
        const auto failed = std::find_if(tasks.begin(), tasks.end(),
                                         [](const Task* task) { return task->state == TaskState::kFailed; });
        return fail_round(decision, job, failed != tasks.end() ? (*failed)->error : "a training task was cancelled");
    }
    if (done >= needed && (late || only_silent_are_left(job, tasks, grace_s, now_ms)))
        return close_training(decision, job, now_ms);
    if (late)
        fail_late_round(decision, job, tasks, done, now_ms);
    else if (round.deadline_ms != job.round.deadline_ms)
        decision.rounds.push_back(std::move(round));
}

// Until when evaluations that are not there are waited for. While the job trains nobody needs them, and they may stand
// in a queue behind its trainings. Then they differ in their data, their machines and their queues: once half of the
// last round's are there these tell how long is usual, and all others have as long again, the grace at least.
std::int64_t evaluations_end(const JobView& job, std::int64_t now_ms) {
    const auto tasks = round_tasks(job, TaskKind::kEvaluate, job.round.number);
    const auto done =
        std::count_if(tasks.begin(), tasks.end(), [](const Task* task) { return is_finished(task->state); });
    if (!is_last_round_closed(job) || job.round.evaluated || 2 * done < static_cast<std::ptrdiff_t>(tasks.size()))
        return INT64_MAX;
    const std::int64_t took_ms = now_ms - job.round.closed_ms.value_or(now_ms);
    return now_ms + std::max(job.spec.evaluation_grace_s * 1000, took_ms);
}

std::int64_t open_evaluations(const JobView& job) {
    return std::ranges::count_if(
        job.tasks, [](const Task& task) { return task.kind() == TaskKind::kEvaluate && !is_finished(task.state); });
}

// True when every closed round has its evaluations, or has waited for them long enough. Where rounds come faster than
// their models are evaluated the oldest ones do not get theirs: each look at the job reads all that are open.
bool advance_evaluations(JobDecision& decision, const JobView& job, std::int64_t now_ms) {
    bool all = true;
    const std::int64_t end_ms = evaluations_end(job, now_ms);
    std::set<std::int64_t> open;  // rounds that still wait for evaluations
    std::int64_t left = open_evaluations(job);
    for (Round round : job.closed) {
        const auto tasks = round_tasks(job, TaskKind::kEvaluate, round.number);
        const bool is_evaluated =
            std::all_of(tasks.begin(), tasks.end(), [](const Task* task) { return is_finished(task->state); });
        const auto before = round.evaluate_by_ms;
        if (end_ms < round.evaluate_by_ms.value_or(INT64_MAX)) round.evaluate_by_ms = end_ms;
        const bool are_too_many = left > kOpenEvaluationsMax && round.number < job.closed.back().number;
        left -= count_tasks(job, tasks).unfinished;
        if (!is_evaluated && !are_too_many && !is_late(job, round.evaluate_by_ms, now_ms) &&
            !only_silent_are_left(job, tasks, job.spec.evaluation_grace_s, now_ms)) {
            all = false;
            open.insert(round.number);
            if (round.evaluate_by_ms != before) decision.rounds.push_back(round);
            continue;
        }
        // Its model is judged beside the one that it began with.
        if (job.spec.pauses_when_worse() && open.contains(round.parent)) {
            all = false;
            open.insert(round.number);
            continue;
        }
        for (auto& [facility, record] : best_models(job, round)) decision.records[facility] = std::move(record);
        round.evaluated = true;
        decision.rounds.push_back(round);
        go_on_without(decision, job, tasks, "the evaluation", now_ms);
        // Each evaluation's atoll.task.done.v1 has told its results: all of them are more than one event can hold.
        Json data = {{"round", round.number}};
        if (Json failed = failed_evaluations(tasks, decision.reasons); !failed.is_null())
            data["failed_evaluations"] = std::move(failed);
        add_event(decision, job, "atoll.round.evaluated.v1", std::move(data));
    }
    return all;
}

void count_refusal(JobDecision& decision, JobView& job, const std::string& facility, const std::string& reason) {
    Record& record = job.records[facility];
    ++record.refusals;
    record.reason = reason;
    decision.records[facility] = record;
    if (record.refusals != job.spec.quarantine_after) return;
    add_event(decision, job, "atoll.participant.quarantined.v1",
              {{"round", job.round.number}, {"facility", facility}, {"refusals", record.refusals}, {"error", reason}});
}

bool is_opposed(const Json& contribution) {
    return contribution.value("cosine", 1.0) <= kOpposed;
}

// What a site keeps goes on from the round in whose model its update is. An update of which nothing counts is looked at
// too: it is the one that points away most.
void count_contributions(JobDecision& decision, JobView& job, Json& contributions, std::int64_t round) {
    const auto opposed = std::count_if(contributions.begin(), contributions.end(), is_opposed);
    const bool says_who = 2 * opposed <= std::ssize(contributions);
    for (Json& one : contributions) {
        const std::string facility = one.at("facility").get<std::string>();
        Record& record = job.records[facility];
        if (one.value("counted", 1.0) > 0) record.counted_round = round;
        if (says_who && one.contains("cosine")) record.opposed_rounds = is_opposed(one) ? record.opposed_rounds + 1 : 0;
        if (record.opposed_rounds >= kOpposedRounds && is_opposed(one)) one["opposed_rounds"] = record.opposed_rounds;
        decision.records[facility] = record;
    }
}

// The job does not go on from a spoiled model: what was begun from it is ended, and somebody has to say how it goes on.
void pause_for(JobDecision& decision, const JobView& job, const SpoiledModel& spoiled) {
    Json details = to_json(job, spoiled);
    cancel_round(decision, job, "it began with a model that got worse: " + describe(job, spoiled));
    decision.job_state = JobState::kPaused;
    Json data = details;
    data["error"] = details.at("reason");
    data.erase("reason");
    add_event(decision, job, "atoll.job.paused.v1", std::move(data));
    decision.spoiled = std::move(details);
}

}  // namespace

void cancel_round(JobDecision& decision, const JobView& job, const std::string& why) {
    if (job.round.state != RoundState::kTraining && job.round.state != RoundState::kAggregating) return;
    Round round = job.round;
    round.state = RoundState::kCancelled;
    round.error = why;
    decision.rounds.push_back(round);
    for (const Task* task : round_tasks(job, TaskKind::kTrain, round.number)) {
        if (is_finished(task->state)) continue;
        decision.cancelled_tasks.push_back(task->id);
        decision.reasons[task->id] = shorten(why, kAbsenceBytesMax);
    }
}

namespace {

// Of the round's accepted updates those that the aggregation could not use are left out, each with its reason.
void refuse_updates(JobDecision& decision, JobView& job, const std::vector<Refusal>& refused) {
    Round& round = job.round;
    for (const Task* task : handed_in_updates(job)) {
        const auto why = std::find_if(refused.begin(), refused.end(),
                                      [&](const Refusal& update) { return update.task == task->id; });
        if (why == refused.end() || std::erase(round.accepted, task->id) == 0) continue;
        round.refused.push_back(*why);
        add_event(decision, job, "atoll.task.refused.v1",
                  {{"task", task->id},
                   {"kind", to_string(task->kind())},
                   {"round", round.number},
                   {"facility", task->facility},
                   {"version", task->result.at("version")},
                   {"error", why->reason}});
        if (why->is_sites_fault) count_refusal(decision, job, task->facility, why->reason);
    }
}

// A bad update is its site's fault and not the job's. Those that were cut off by it, or whose own was sound, train
// again in a round of its own; that a refusal counts against its site ends this before long.
bool train_again(JobDecision& decision, const JobView& job, const std::string& error, std::int64_t now_ms) {
    Round failed = job.round;
    const bool is_of_site = std::ranges::any_of(failed.refused, &Refusal::is_sites_fault);
    if (!is_of_site || lack_of_participants(job) || !check_rounds_made(job).ok()) return false;
    failed.state = RoundState::kFailed;
    failed.error = error + "; round " + std::to_string(failed.number + 1) + " trains again";
    decision.rounds.push_back(failed);
    Round from;
    from.number = failed.parent;
    from.index = failed.index - 1;
    from.version = failed.base;
    open_round(decision, job, failed.number + 1, from, now_ms);
    return true;
}

}  // namespace

JobDecision count_refused_update(JobView job, const std::string& facility, const std::string& reason) {
    JobDecision decision;
    if (!is_finished(job.state)) count_refusal(decision, job, facility, reason);
    return decision;
}

JobDecision submit_job(const JobView& job, std::int64_t now_ms) {
    JobDecision decision;
    add_event(decision, job, "atoll.job.submitted.v1", {{"rounds", job.spec.rounds}, {"base", job.base}});
    Round base;
    base.state = RoundState::kClosed;
    base.base = base.version = job.base;
    evaluate_round(decision, job, base, {{job.base, "base"}}, now_ms);
    open_round(decision, job, 1, base, now_ms);
    return decision;
}

JobDecision advance_job(const JobView& job, std::int64_t now_ms) {
    JobDecision decision;
    if (is_finished(job.state)) return decision;
    if (job.spoiled.is_null())
        if (const auto spoiled = find_spoiled_model(job)) {
            pause_for(decision, job, *spoiled);
            return decision;
        }
    const bool all_evaluated = advance_evaluations(decision, job, now_ms);
    if (job.round.state == RoundState::kTraining) advance_training(decision, job, now_ms);
    if (job.round.state == RoundState::kAggregating && is_late(job, job.round.ask_again_ms, now_ms))
        decision.repeats.push_back(ask_aggregation(decision, job, job.round, now_ms));
    if (is_last_round_closed(job) && all_evaluated && job.spoiled.is_null())
        end_job(decision, job, JobState::kCompleted, "");
    foresee_quiet_ends(decision, job);
    return decision;
}

JobDecision apply_aggregation(const JobView& job, const AggregationResult& result, std::int64_t now_ms) {
    JobDecision decision;
    const bool expected =
        !is_finished(job.state) && job.round.number == result.round && job.round.state == RoundState::kAggregating;
    if (!expected) return decision;
    JobView now = job;
    refuse_updates(decision, now, result.refused);
    if (result.version.empty()) {
        const std::string error = "aggregation of round " + std::to_string(result.round) + " failed: " + result.error;
        if (!train_again(decision, now, error, now_ms)) fail_round(decision, now, error);
        return decision;
    }
    Round& round = now.round;
    round.state = RoundState::kClosed;
    round.version = result.version;
    round.contributions = contributions_of(now, result.contributions);
    count_contributions(decision, now, round.contributions, round.number);
    add_event(decision, job, "atoll.round.aggregated.v1",
              {{"round", round.number}, {"version", result.version}, {"updates", round.contributions}});
    std::vector<EvaluatedModel> models = {{result.version, "global"}};
    if (job.spec.evaluate_updates)
        for (const Task* task : accepted_updates(now)) models.push_back({task->result.at("version"), task->facility});
    const bool is_last = round.index == job.spec.rounds;
    const auto lack = is_last ? std::nullopt : lack_of_participants(now);
    if (lack && may_be_allowed_again(now)) {
        decision.job_state = JobState::kPaused;
        decision.job_error = *lack;
        add_event(decision, job, "atoll.job.paused.v1", {{"round", round.number}, {"error", *lack}});
    } else if (lack) {
        round.evaluated = true;  // nobody waits for that any more
        decision.rounds.push_back(round);
        end_job(decision, now, JobState::kFailed, *lack);
        return decision;
    }
    if (!is_last && !lack) open_round(decision, now, round.number + 1, round, now_ms);
    evaluate_round(decision, job, round, models, now_ms);
    if (is_last && evaluation_copies(job).empty()) {
        end_job(decision, now, JobState::kCompleted, "");
    }
    return decision;
}

JobDecision cancel_job(const JobView& job) {
    JobDecision decision;
    if (!is_finished(job.state)) end_job(decision, job, JobState::kCancelled, "");
    return decision;
}

}  // namespace atl::dispatch
