#include "services/cli/job_course.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "services/cli/output.h"
#include "services/cli/rest.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t kRoundsShown = 8;

std::int64_t integer(const json& object, const char* key) {
    const auto member = object.find(key);
    return member != object.end() && member->is_number() ? member->get<std::int64_t>() : 0;
}

double number(const json& object, const char* key) {
    const auto member = object.find(key);
    return member != object.end() && member->is_number() ? member->get<double>() : 0;
}

// "atoll.task.progress.v1" -> "task.progress"
std::string short_type(const std::string& type) {
    const std::size_t from = type.rfind("atoll.", 0) == 0 ? 6 : 0;
    const auto version = type.rfind(".v");
    return type.substr(from, version == std::string::npos || version < from ? std::string::npos : version - from);
}

}  // namespace

JobCourse::JobCourse(const json& job) : name_(text(job, "name")) {
    const json spec = job.contains("spec") ? job.at("spec") : job;
    rounds_ = integer(spec, "rounds");
    participants_ = spec.value("participants", json::array()).size();
    if (const auto training = spec.find("training"); training != spec.end() && training->is_object())
        steps_ = integer(*training, "steps");
}

std::string JobCourse::take(const json& event) {
    const std::string what = short_type(text(event, "type"));
    const json data = event.value("data", json::object());
    if (what.rfind("task.", 0) == 0) return take_task(what.substr(5), data);
    if (what == "round.evaluated") return take_evaluated(data);
    if (what == "round.opened") {
        round_ = integer(data, "round");
        training_.clear();
        return fmt::format("round {} of {} opened", round_, rounds_);
    }
    if (what == "round.closed")
        return fmt::format("round {}: {} of {} updates, aggregating", integer(data, "round"),
                           data.value("updates", json::array()).size(), participants_);
    if (what.rfind("job.", 0) != 0) return {};
    if (what != "job.completed" && what != "job.failed" && what != "job.cancelled")
        return "job " + name_ + " " + what.substr(4);
    error_ = text(data, "error");
    return take_end(what.substr(4));
}

// The reason is told once: a job mostly fails with what its last task said.
std::string JobCourse::take_end(const std::string& state) {
    final_state_ = state;
    const std::string line = "job " + name_ + " " + state;
    if (has_told_error()) return line;
    told_error_ = error_;
    return line + ": " + error_;
}

std::string JobCourse::take_state(const std::string& state) {
    const bool is_paused = state == "paused";
    if (ended() || is_paused == is_paused_) return {};
    is_paused_ = is_paused;
    return "job " + name_ + (is_paused ? " paused: no further task starts; `atoll job resume` goes on" : " goes on");
}

double JobCourse::Work::mean_tokens_per_s() const {
    if (tokens_per_s > 0) return tokens_per_s;
    return s_per_token > 0 ? static_cast<double>(steps_seen) / s_per_token : 0;
}

void JobCourse::take_training(const std::string& what, const json& data) {
    Work& work = training_[text(data, "facility")];
    if (const std::int64_t attempt = integer(data, "attempt"); attempt != work.attempt) {
        work = Work();
        work.attempt = attempt;
    }
    work.state = what == "progress" ? "running" : what;
    if (what == "progress") {
        work.step = integer(data, "step");
        work.loss = number(data, "loss");
        if (const double rate = number(data, "tokens_per_s"); rate > 0) ++work.steps_seen, work.s_per_token += 1 / rate;
    }
    if (what == "done") {
        const json metrics = data.value("result", json::object()).value("metrics", json::object());
        work.tokens_per_s = number(metrics, "tokens_per_s");
        if (metrics.contains("loss")) work.loss = number(metrics, "loss");
    }
}

std::string JobCourse::take_task(const std::string& what, const json& data) {
    const std::string facility = text(data, "facility");
    const bool trains = text(data, "kind") == "train" || (what == "progress" && text(data, "kind").empty());
    if (trains && integer(data, "round") >= round_) take_training(what, data);
    if (what == "progress") return {};  // one a step: only in the picture
    const std::string error = text(data, "error");
    if (what == "failed" && !error.empty()) {  // it says which task of which round at which facility
        told_error_ = error;
        return error;
    }
    if (what == "retrying")
        return fmt::format("round {}  {}  {} failed at attempt {}, trying again: {}", integer(data, "round"), facility,
                           text(data, "kind"), integer(data, "attempt"), error);
    std::string line = fmt::format("round {}  {}  {} {}", integer(data, "round"), facility, text(data, "kind"), what);
    if (const std::int64_t attempt = integer(data, "attempt"); attempt > 0)
        line += fmt::format(", attempt {}", attempt);
    if (!error.empty()) line += ": " + error;
    if (what == "done" && trains)
        if (const Work& work = training_[facility]; work.mean_tokens_per_s() > 0)
            line += fmt::format("  loss {}  {:.0f} tokens/s", human_number(work.loss), work.mean_tokens_per_s());
    return line;
}

std::string JobCourse::take_evaluated(const json& data) {
    const std::int64_t round = integer(data, "round");
    std::string line = fmt::format("round {}  perplexity", round);
    for (const json& site : data.value("sites", json::array())) {
        const std::string column = text(site, "dataset") + " at " + text(site, "facility");
        if (std::find(sites_.begin(), sites_.end(), column) == sites_.end()) sites_.push_back(column);
        line += "  " + column + ":";
        for (const json& evaluation : site.value("evaluations", json::array())) {
            perplexity_[{round, text(evaluation, "which")}][column] = number(evaluation, "perplexity");
            line += " " + text(evaluation, "which") + " " + human_number(number(evaluation, "perplexity"));
        }
    }
    return line;
}

std::string JobCourse::training_table() const {
    Table table({"facility", "training", "attempt", "step", "loss", "tokens/s"});
    for (const auto& [facility, now] : training_) {
        const std::string steps = steps_ > 0 ? fmt::format("{}/{}", now.step, steps_) : std::to_string(now.step);
        const bool began = now.step > 0;
        table.add({facility, now.state, now.attempt > 0 ? std::to_string(now.attempt) : "", began ? steps : "",
                   began ? human_number(now.loss) : "", began ? fmt::format("{:.0f}", now.mean_tokens_per_s()) : ""});
    }
    return training_.empty() ? std::string() : table.text();
}

// The base, the global models of the last rounds, and the newest round's updates: it must fit on a small terminal.
std::string JobCourse::perplexity_table() const {
    if (perplexity_.empty()) return {};
    std::vector<std::string> header = {"perplexity of"};
    header.insert(header.end(), sites_.begin(), sites_.end());
    Table table(header);
    const std::int64_t newest = perplexity_.rbegin()->first.first;
    for (const auto& [model, by_site] : perplexity_) {
        const auto& [round, which] = model;
        const bool global = which == "global" && round > newest - kRoundsShown;
        if (which != "base" && !global && round != newest) continue;
        std::vector<std::string> row = {which == "base" ? "base model" : fmt::format("round {} {}", round, which)};
        for (const std::string& site : sites_)
            row.push_back(by_site.count(site) != 0 ? human_number(by_site.at(site)) : "");
        table.add(std::move(row));
    }
    return table.text();
}

std::string JobCourse::picture() const {
    const std::string state = ended() ? "  " + final_state_ : is_paused_ ? "  paused" : "";
    return fmt::format("job {}  round {} of {}{}\n", name_, round_, rounds_, state) + training_table() +
           perplexity_table();
}

}  // namespace atl::cli
