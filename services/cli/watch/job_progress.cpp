#include "services/cli/watch/job_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/watch/metrics_table.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t kRoundsShown = 8;

std::int64_t integer(const json& object, const char* key) {
    const auto member = object.find(key);
    return member != object.end() && member->is_number() ? member->get<std::int64_t>() : 0;
}

// "atoll.task.progress.v1" -> "task.progress"
std::string short_type(const std::string& type) {
    const std::size_t from = type.rfind("atoll.", 0) == 0 ? 6 : 0;
    const auto version = type.rfind(".v");
    return type.substr(from, version == std::string::npos || version < from ? std::string::npos : version - from);
}

// "2026-03-01T12:00:00.5Z", to the second; none: it is no such time.
std::optional<std::chrono::system_clock::time_point> parse_time(const std::string& rfc3339) {
    std::tm fields{};
    const char* rest = ::strptime(rfc3339.c_str(), "%Y-%m-%dT%H:%M:%S", &fields);
    if (rest == nullptr) return std::nullopt;
    return std::chrono::system_clock::from_time_t(::timegm(&fields));
}

// What a site says may have several lines: further ones are indented, so that none looks like a line of ours.
json with_indented_texts(json value) {
    if (value.is_string()) return with_indented_lines(value.get_ref<const std::string&>());
    if (value.is_structured())
        for (json& inner : value) inner = with_indented_texts(std::move(inner));
    return value;
}

// Those of a round's updates that did not count whole, and how far they went; those that oppose the others.
std::string noted_updates(const json& data) {
    std::string lines;
    for (const json& one : data.value("updates", json::array())) {
        const double counted = one.value("counted", 1.0);
        if (counted < 1)
            lines += fmt::format("\nround {}  {}'s change has the norm {:.4g}, far from the others': {} % of it counts",
                                 integer(data, "round"), text(one, "facility"), one.value("norm", 0.0),
                                 human_number(std::round(100 * counted)));
        if (const double part = one.value("control_variate_counted", 1.0); part < 1)
            lines += fmt::format("\nround {}  {}'s control variate has the norm {:.4g}: {} % of it counts",
                                 integer(data, "round"), text(one, "facility"), one.value("control_variate_norm", 0.0),
                                 human_number(std::round(100 * part)));
        if (const std::string opposition = opposition_text(one); !opposition.empty())
            lines += fmt::format("\nround {}  {}'s {}", integer(data, "round"), text(one, "facility"), opposition);
    }
    return lines;
}

}  // namespace

JobProgress::JobProgress(const json& job) : name_(text(job, "name")), evaluations_(job.value("spec", job)) {
    const json spec = job.value("spec", job);
    round_ = {{"round", 0}, {"rounds", integer(spec, "rounds")}};
    for (const json& one : spec.value("participants", json::array())) participants_.push_back(text(one, "facility"));
    if (const auto training = spec.find("training"); training != spec.end() && training->is_object())
        steps_ = integer(*training, "steps");
}

void JobProgress::enter(Phase phase, const json& event) {
    phase_ = phase;
    phase_since_ = text(event, "time");
    parts_.clear();
}

std::string JobProgress::apply(const json& told) {
    const json event = with_indented_texts(told);
    const std::string what = short_type(text(event, "type"));
    const json data = event.value("data", json::object());
    if (what.rfind("task.", 0) == 0) return apply_task(what.substr(5), data);
    if (what == "round.opened") enter(Phase::kTraining, event);
    if (what == "round.closed") enter(Phase::kAggregating, event);
    if (what == "round.aggregated") enter(Phase::kEvaluating, event);
    if (what.rfind("round.", 0) == 0) return apply_round(what.substr(6), data);
    if (what == "participant.quarantined") return apply_quarantine(data);
    if (what == "participant.readmitted") return apply_readmission(data);
    if (what == "participant.left_out") return apply_left_out(data);
    if (what.rfind("job.", 0) != 0) return {};
    if (what == "job.submitted") evaluations_.begin(0);
    if (what == "job.paused") {
        end_trainings();
        pause_reason_ =
            text(data, "error") + "\n`atoll job resume` goes on: --accept, --without FACILITY or --from-round N";
        return "job " + name_ + " paused: " + pause_reason_;
    }
    if (what == "job.resumed") pause_reason_.clear();
    if (what == "job.resumed" && data.contains("from_round"))
        return fmt::format("job {} goes on from the model of round {}", name_, integer(data, "from_round"));
    if (what == "job.resumed") {  // one that had failed
        final_state_.clear();
        error_.clear();
        told_error_.clear();
        left_.clear();
        return fmt::format("job {} goes on with round {}", name_, integer(data, "round"));
    }
    if (what != "job.completed" && what != "job.failed" && what != "job.cancelled")
        return "job " + name_ + " " + what.substr(4);
    error_ = text(data, "error");
    return apply_end(what.substr(4));
}

// Those of the round that are still under way are cancelled with it, which no event tells of each.
void JobProgress::end_trainings() {
    for (auto& [facility, work] : training_)
        if (work.state != "done" && work.state != "failed") work.state = "cancelled";
}

// It is no more among those that are waited for.
std::string JobProgress::apply_quarantine(const json& data) {
    const std::string facility = text(data, "facility");
    std::erase(participants_, facility);
    return fmt::format("round {}  {} trains in no later round: {} of its updates were refused, at last as {}",
                       integer(data, "round"), facility, integer(data, "refusals"), text(data, "error"));
}

std::string JobProgress::apply_left_out(const json& data) {
    std::erase(participants_, text(data, "facility"));
    const std::string why = text(data, "error");
    return fmt::format("{} trains no more for this job{}{}", text(data, "facility"), why.empty() ? "" : ": ", why);
}

std::string JobProgress::apply_readmission(const json& data) {
    participants_.push_back(text(data, "facility"));
    return fmt::format("{} trains again from the next round on", text(data, "facility"));
}

std::string JobProgress::apply_round(const std::string& what, const json& data) {
    const std::int64_t round = integer(data, "round");
    if (what == "opened") {
        round_["round"] = round;
        round_["index"] = data.value("index", round);
        if (data.contains("rounds")) round_["rounds"] = data.at("rounds");
        training_.clear();
        for (const std::string& facility : participants_) training_[facility];
        return fmt::format("round {} opened", round_text(round_));
    }
    if (what == "closed") {
        updates_ = data.value("updates", json::array()).size();
        return fmt::format("round {}: {} of {} updates, aggregating", round, updates_, participants_.size());
    }
    if (what == "aggregated") {
        evaluations_.begin(round);
        const std::string noted = noted_updates(data);
        if (evaluations_.dataset_count() == 0) return fmt::format("round {}: aggregated", round) + noted;
        return fmt::format("round {}: aggregated, to be evaluated on {} datasets", round,
                           evaluations_.dataset_count()) +
               noted;
    }
    if (what != "evaluated") return {};
    evaluations_.end(round);
    std::string line = apply_evaluated(round);
    const std::string failed = failed_evaluations_text(data.value("failed_evaluations", json()));
    return failed.empty() ? line : line + (line.empty() ? fmt::format("round {}  ", round) : "  ") + failed;
}

void JobProgress::apply_aggregation(const json& told) {
    const json aggregation = with_indented_texts(told);
    const std::string state = text(aggregation, "state");
    parts_ = state;
    if (state == "measuring" || state == "averaging")
        parts_ = fmt::format("{} of {} parts {}", text(aggregation, "parts", "done"),
                             text(aggregation, "parts", "total"), state == "measuring" ? "measured" : "averaged");
}

// The reason is told once: a job mostly fails with what its last task said.
std::string JobProgress::apply_end(const std::string& state) {
    final_state_ = state;
    end_trainings();
    const std::string line = "job " + name_ + " " + state;
    if (error_.empty() || has_told_error()) return line;
    told_error_ = error_;
    return line + ": " + error_;
}

std::string JobProgress::apply_state(const std::string& state) {
    const bool is_paused = state == "paused";
    if (ended() || is_paused == is_paused_) return {};
    is_paused_ = is_paused;
    if (!pause_reason_.empty()) return {};  // its event has told why, and how it goes on
    return "job " + name_ + (is_paused ? " paused: no further task starts; `atoll job resume` goes on" : " goes on");
}

std::string JobProgress::apply_waiting(const json& told) {
    const json waiting = with_indented_texts(told);
    std::map<std::string, json> now;
    std::string lines;
    const auto add_line = [&](const std::string& line) { lines += (lines.empty() ? "" : "\n") + line; };
    for (const json& one : waiting.is_array() ? waiting : json::array()) {
        const std::string facility = text(one, "facility");
        const auto before = waiting_.find(facility);
        if (before == waiting_.end() || text(before->second, "reason") != text(one, "reason"))
            add_line(facility + "  " + waiting_text(one));
        now[facility] = one;
    }
    for (const auto& [facility, before] : waiting_)
        if (!now.contains(facility)) add_line(facility + "  goes on");
    waiting_ = std::move(now);
    return lines;
}

std::string JobProgress::apply_left(const json& told) {
    const json waits = with_indented_texts(told);
    left_.clear();
    for (const json& one : waits.is_array() ? waits : json::array()) {
        if (!one.value("cancelling", false)) continue;
        const std::string facility = text(one, "facility");
        left_[facility] = wait_text(one);
        const auto work = training_.find(facility);
        if (work != training_.end() && work->second.state == "cancelled") work->second.state = "cancelling";
    }
    std::vector<std::string> lines;
    for (const auto& [facility, what] : left_) lines.push_back(facility + "  " + what);
    return join(lines, "\n");
}

namespace {

// The newest validation that an event of steps tells of: {step, val_loss, val_perplexity}; null: none.
json newest_validation(const json& data) {
    if (has_validation(data)) return data;
    const json points = data.value("points", json::object());
    const json losses = points.value("val_loss", json::array()),
               perplexities = points.value("val_perplexity", json::array());
    const json steps = points.value("step", json::array());
    for (std::size_t i = std::min(losses.size(), steps.size()); i-- > 0;)
        if (losses[i].is_number())
            return {{"step", steps[i]},
                    {"val_loss", losses[i]},
                    {"val_perplexity", i < perplexities.size() ? perplexities[i] : json()}};
    return {};
}

// Of the steps that have told one: a step of few tokens tells its loss with later ones.
json newest_loss(const json& data, const json& before) {
    json losses = data.value("points", json::object()).value("loss", json::array());
    for (auto loss = losses.rbegin(); loss != losses.rend(); ++loss)
        if (loss->is_number()) return *loss;
    return before.is_object() ? before.value("loss", json()) : json();
}

// The newest step after an event of steps. A validation comes after its step, and stays until the next.
json newest_progress(const json& before, const json& data) {
    json now = data;
    if (before.is_object() && integer(before, "step") == integer(data, "step")) {
        now = before;
        now.update(data);
    }
    if (text(now, "loss").empty()) now["loss"] = newest_loss(data, before);
    json validation = newest_validation(data);
    if (validation.is_null()) validation = before;
    if (validation.is_object())
        for (const char* key : {"val_loss", "val_perplexity"}) now[key] = validation.value(key, json());
    return now;
}

std::string validation_text(const json& data) {
    const json validation = newest_validation(data);
    if (validation.is_null()) return {};
    const json perplexity = validation.value("val_perplexity", json());
    return fmt::format("round {}  {}  validated after step {}: loss {}{}", integer(data, "round"),
                       text(data, "facility"), text(validation, "step"),
                       human_number(validation.at("val_loss").get<double>()),
                       perplexity.is_number() ? ", perplexity " + human_number(perplexity.get<double>()) : "");
}

// What comes after an attempt that was cut short. A state can have been saved after a step alone.
const char* next_attempt_text(bool trains, bool has_made_a_step) {
    if (!trains) return "does it again";
    return has_made_a_step ? "goes on from the last saved state, if there is one" : "begins at the start";
}

// What to call a task after the event `what`: one of a task that runs says so, as where its site suspends it.
std::string state_word(const std::string& what, const json& data) {
    const std::string step = text(data, "step");
    return what == "queued" && !step.empty() ? step : what;
}

}  // namespace

void JobProgress::apply_training(const std::string& what, const json& data) {
    Work& work = training_[text(data, "facility")];
    if (const std::int64_t attempt = integer(data, "attempt"); attempt != work.attempt) {
        const std::int64_t reached = std::max(work.reached, integer(work.progress, "step"));
        work = Work();
        work.attempt = attempt;
        work.reached = reached;
    }
    work.state = what == "progress" ? "running" : state_word(what, data);
    if (what == "queued") work.state += ": " + text(data, "reason");
    if (what == "waiting") work.state += ": " + text(data, "error");
    if (what == "progress") work.progress = newest_progress(work.progress, data);
    if (what == "done") work.metrics = data.value("result", json::object()).value("metrics", json());
}

std::string JobProgress::apply_task(const std::string& what, const json& data) {
    const std::string facility = text(data, "facility");
    const bool trains = text(data, "kind") == "train" || (what == "progress" && text(data, "kind").empty());
    if (trains && integer(data, "round") >= round()) apply_training(what, data);
    if (text(data, "kind") == "evaluate") {
        evaluations_.apply(what, data);
        if (what == "done") apply_results(data);
    }
    if (what == "progress" && trains && data.contains("first_step")) {
        const std::string from = resumption_text(integer(data, "first_step"), training_[facility].reached);
        if (!from.empty())
            return fmt::format("round {}  {}  train, attempt {}, {}", integer(data, "round"), facility,
                               integer(data, "attempt"), from);
    }
    if (what == "progress" && trains) return validation_text(data);  // a step is only in the picture
    if (what == "progress" || what == "evaluating") return {};       // one a step or model: only in the picture
    const std::string error = text(data, "error");
    if (what == "failed" && !error.empty()) {  // it says which task of which round at which facility
        told_error_ = error;
        return error;
    }
    if (what == "retrying" && data.value("interrupted", false))
        return fmt::format(
            "round {}  {}  {} ended at attempt {}; the next one {}: {}", integer(data, "round"), facility,
            text(data, "kind"), integer(data, "attempt"),
            next_attempt_text(trains, !training_.contains(facility) || training_.at(facility).has_made_a_step()),
            error);
    if (what == "retrying")
        return fmt::format("round {}  {}  {} failed at attempt {}, trying again: {}", integer(data, "round"), facility,
                           text(data, "kind"), integer(data, "attempt"), error);
    std::string line = fmt::format("round {}  {}  {} {}", integer(data, "round"), facility, text(data, "kind"),
                                   state_word(what, data));
    if (const std::int64_t attempt = integer(data, "attempt"); attempt > 0)
        line += fmt::format(", attempt {}", attempt);
    if (what == "queued") line += ": " + text(data, "reason");
    if (!error.empty()) line += ": " + error;
    const json metrics = data.value("result", json::object()).value("metrics", json::object());
    if (what == "done" && trains && metrics.contains("loss"))
        line += fmt::format("  mean loss {}, mean {} tokens/s", text(metrics, "loss"), text(metrics, "tokens_per_s"));
    if (what == "done" && trains && metrics.value("optimizer_anew", json()) == true)
        line +=
            "  its optimizer began anew: the moments that its site had kept could not be used (see the attempt's "
            "stderr.log)";
    if (what == "done" && trains && metrics.value("rounding_error_anew", json()) == true)
        line += "  what rounding its last update lost could not be added to this one (see the attempt's stderr.log)";
    if (what == "done" && trains && metrics.value("control_variate_anew", json()) == true)
        line +=
            "  nothing was added to its gradients: its own control variate of the round before could not be used (see "
            "the attempt's stderr.log)";
    return line;
}

void JobProgress::apply_results(const json& data) {
    const json result = data.value("result", json::object());
    Results& results = results_[integer(data, "round")][{text(data, "facility"), text(data, "dataset")}];
    results.clear();
    for (const json& evaluation : result.value("evaluations", json::array())) {
        const auto perplexity = evaluation.find("perplexity");
        const bool is_known = perplexity != evaluation.end() && perplexity->is_number();
        results.emplace_back(text(evaluation, "which"), is_known ? perplexity->get<double>() : 0);
    }
}

// All that is to come of a round has come: its perplexities are shown together.
std::string JobProgress::apply_evaluated(std::int64_t round) {
    const auto found = results_.find(round);
    if (found == results_.end()) return {};
    std::string line = fmt::format("round {}  perplexity", round);
    for (const auto& [place, results] : found->second) {
        const std::string column = place.second + " at " + place.first;
        if (std::find(columns_.begin(), columns_.end(), column) == columns_.end()) columns_.push_back(column);
        line += "  " + column + ":";
        for (const auto& [which, perplexity] : results) {
            perplexity_[{round, which}][column] = perplexity;
            line += " " + which + " " + human_number(perplexity);
        }
    }
    results_.erase(found);
    return line;
}

std::string JobProgress::training_table(std::size_t width) const {
    std::vector<Column> header = {"facility", "training", droppable("attempt"), "step"};
    const bool validates = std::any_of(training_.begin(), training_.end(),
                                       [](const auto& one) { return has_validation(one.second.progress); });
    for (const Column& column : training_header(validates)) header.push_back(column);
    Table table(header);
    for (const auto& [facility, now] : training_) {
        std::string step = text(now.progress, "step");
        if (!step.empty() && steps_ > 0) step += fmt::format("/{}", steps_);
        std::vector<std::string> row = {facility, now.state, now.attempt > 0 ? std::to_string(now.attempt) : "", step};
        for (std::string& cell : training_cells(now.progress, now.metrics, validates)) row.push_back(std::move(cell));
        table.add(std::move(row));
    }
    return training_.empty() ? std::string() : table.text(width);
}

// The base, the global models of the last rounds, and the newest round's updates: it must fit on a small terminal.
std::string JobProgress::perplexity_table(std::size_t width) const {
    if (perplexity_.empty()) return {};
    std::vector<Column> header = {"perplexity of"};
    for (const std::string& column : columns_) header.push_back(droppable(column));
    Table table(header);
    const std::int64_t newest = perplexity_.rbegin()->first.first;
    for (const auto& [model, by_column] : perplexity_) {
        const auto& [round, which] = model;
        const bool global = which == "global" && round > newest - kRoundsShown;
        if (which != "base" && !global && round != newest) continue;
        std::vector<std::string> row = {which == "base" ? "base model" : fmt::format("round {} {}", round, which)};
        for (const std::string& column : columns_)
            row.push_back(by_column.count(column) != 0 ? human_number(by_column.at(column)) : "");
        table.add(std::move(row));
    }
    return table.text(width);
}

std::string JobProgress::phase_text(std::chrono::system_clock::time_point now) const {
    std::string line;
    switch (phase_) {
        case Phase::kNone:
            return {};
        case Phase::kTraining:
            line = "training";
            break;
        case Phase::kAggregating:
            line = fmt::format("aggregating {} of {} updates", updates_, participants_.size());
            break;
        case Phase::kEvaluating:
            line = "evaluating";
            break;
    }
    if (const auto since = parse_time(phase_since_)) {
        const double seconds = std::chrono::duration<double>(now - *since).count();
        line += ", " + human_seconds(std::max(0.0, seconds));
    }
    return line + (parts_.empty() ? "" : ", " + parts_);
}

std::string JobProgress::picture(std::size_t width, std::chrono::system_clock::time_point now) const {
    const std::string state = ended() ? final_state_ : is_paused_ ? "paused" : phase_text(now);
    std::string waits;
    if (!ended() && is_paused_ && !pause_reason_.empty())
        for (const std::string_view line : split(pause_reason_, '\n')) {
            const std::size_t first = line.starts_with(' ') ? kIndent : 0;
            waits += std::string(first, ' ') + fold(line, first, kIndent, width);
        }
    if (!ended())
        for (const auto& [facility, waiting] : waiting_)
            waits += facility + "  " + fold(waiting_text(waiting), facility.size() + 2, kIndent, width);
    for (const auto& [facility, what] : left_)
        waits += facility + "  " + fold(what, facility.size() + 2, kIndent, width);
    return fmt::format("job {}  round {}{}\n", name_, round_text(round_), state.empty() ? "" : "  " + state) +
           training_table(width) + waits + (ended() ? std::string() : evaluations_.table(width)) +
           perplexity_table(width);
}

}  // namespace atl::cli
