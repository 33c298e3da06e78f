#include "tests/fault/promises.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "shared/digest/digest.h"
#include "tests/fault/job_load.h"

namespace atl::fault {
namespace {

using json::Json;

// Evidence with the indexes that the checks share.
struct Case {
    const Json& evidence;
    Verdict verdict = {};
    std::map<std::string, const Json*> jobs = {};                          // by id
    std::map<std::pair<std::string, int>, const Json*> rounds = {};        // by job and number
    std::map<std::string, const Json*> tasks = {};                         // by id
    std::map<std::pair<std::string, int>, const Json*> aggregations = {};  // by job and round

    explicit Case(const Json& all) : evidence(all) {
        const Json& dispatch = all.at("dispatch");
        for (const Json& job : dispatch.at("jobs")) jobs[job.at("id")] = &job;
        for (const Json& round : dispatch.at("rounds")) rounds[{round.at("job_id"), round.at("number")}] = &round;
        for (const Json& task : dispatch.at("tasks")) tasks[task.at("id")] = &task;
        for (const Json& one : all.at("aggregation").at("aggregations"))
            aggregations[{one.at("job"), one.at("round")}] = &one;
    }
    void report(const std::string& line) { verdict.broken.push_back(line); }
    std::string job_name(const std::string& id) const {
        const auto job = jobs.find(id);
        return job == jobs.end() ? "job " + id : job->second->at("name").get<std::string>();
    }
    std::string place(const std::string& job, int round) const {
        return job_name(job) + ", round " + std::to_string(round);
    }
};

// The reason for which a job may end otherwise than completed; empty: none.
bool may_end_so(const Json& submitted, const std::string& state, const std::string& error) {
    if (state == "completed") return true;
    if (state == "cancelled") return submitted.at("cancelled");
    const bool is_late = error.find("passed its deadline") != std::string::npos;
    return state == "failed" && is_late && submitted.at("short_deadline");
}

void check_jobs(Case& all) {
    std::map<std::string, std::vector<const Json*>> by_name;
    for (const auto& [id, job] : all.jobs) by_name[job->at("name")].push_back(job);
    for (const Json& submitted : all.evidence.at("submitted")) {
        const std::string name = submitted.at("name");
        const std::size_t count = by_name[name].size();
        if (count > 1) all.report(name + " was submitted once and is there " + std::to_string(count) + " times");
        if (count == 0 && !submitted.at("id").get<std::string>().empty())
            all.report(name + " was accepted as " + submitted.at("id").get<std::string>() + " and is not there");
        for (const Json* job : by_name[name]) {
            const std::string state = job->at("state");
            const std::string error = job->at("error");
            if (!is_final(state))
                all.report(name + " is stuck: " + state + " in round " + job->at("current_round").dump());
            else if (!may_end_so(submitted, state, error))
                all.report(name + " " + state + " without a reason that may be: " + error);
        }
    }
    for (const auto& [id, task] : all.tasks)
        if (task->at("state") == "pending" || task->at("state") == "running")
            all.report("task " + id + " (" + task->at("kind").get<std::string>() + " at " +
                       task->at("facility").get<std::string>() + ") is stuck: " + task->at("state").get<std::string>());
}

// Numbers without gaps, the end last, and each round opened, closed and aggregated once.
void check_job_events(Case& all) {
    std::map<std::string, std::vector<const Json*>> by_job;
    for (const Json& event : all.evidence.at("dispatch").at("events")) by_job[event.at("job_id")].push_back(&event);
    for (const auto& [id, job] : all.jobs) {
        const auto& events = by_job[id];
        const std::string name = all.job_name(id);
        std::map<std::pair<std::string, std::string>, int> of_round;
        std::map<std::string, int> done;
        for (std::size_t i = 0; i < events.size(); ++i) {
            const Json& event = *events[i];
            if (event.at("number") != i + 1)
                all.report(name + ": event " + std::to_string(i + 1) + " has the number " + event.at("number").dump());
            const std::string type = event.at("type");
            const Json& data = event.at("data");
            if (type.starts_with("atoll.round.")) ++of_round[{type, data.at("round").dump()}];
            if (type == "atoll.task.done.v1") ++done[data.at("task")];
        }
        if (job->at("event_count") != events.size())
            all.report(name + " counts " + job->at("event_count").dump() + " events and has " +
                       std::to_string(events.size()));
        const std::string state = job->at("state");
        if (is_final(state) && (events.empty() || events.back()->at("type") != "atoll.job." + state + ".v1"))
            all.report(name + ": its last event does not say that it " + state);
        for (const auto& [what, count] : of_round)
            if (count > 1)
                all.report(name + ": " + what.first + " of round " + what.second + " came " + std::to_string(count) +
                           " times");
        for (const auto& [task, count] : done)
            if (count > 1) all.report("task " + task + " was done " + std::to_string(count) + " times");
    }
}

void check_rounds(Case& all) {
    std::map<std::string, int> next;
    for (const auto& [key, round] : all.rounds) {
        const auto& [job, number] = key;
        if (number != next[job]) all.report(all.place(job, number) + " does not follow the one before");
        next[job] = number + 1;
        const std::string state = round->at("state");
        const auto later = all.rounds.find({job, number + 1});
        if (later == all.rounds.end()) continue;
        if (state != "closed") all.report(all.place(job, number) + " is " + state + ", and the next one is there");
        if (later->second->at("base_digest") != round->at("version_digest"))
            all.report(all.place(job, number + 1) + " does not go on from the version of the round before");
    }
    for (const auto& [id, job] : all.jobs) {
        const int last = next[id] - 1;
        if (job->at("current_round") != last)
            all.report(all.job_name(id) + " is in round " + job->at("current_round").dump() + " of " +
                       std::to_string(last));
        if (job->at("state") == "completed" && job->at("spec").at("rounds") != last)
            all.report(all.job_name(id) + " completed after " + std::to_string(last) + " of " +
                       job->at("spec").at("rounds").dump() + " rounds");
    }
}

std::set<std::string> members(const Json& list, const char* key) {
    std::set<std::string> values;
    for (const Json& item : list) values.insert(item.at(key));
    return values;
}

// Each accepted update in exactly one aggregation: its round's.
void check_aggregations(Case& all) {
    std::map<std::string, int> counted;
    for (const auto& [key, aggregation] : all.aggregations) {
        for (const Json& update : aggregation->at("updates")) {
            const std::string task = update.at("task");
            ++counted[task];
            const auto known = all.tasks.find(task);
            if (known == all.tasks.end() || known->second->at("result").is_null() ||
                known->second->at("result").at("version") != update.at("version"))
                all.report(all.place(key.first, key.second) + ": the aggregation has another update of task " + task);
        }
        if (!all.rounds.contains(key))
            all.report(all.place(key.first, key.second) + " was aggregated and is not there");
    }
    for (const auto& [task, count] : counted)
        if (count > 1) {
            ++all.verdict.updates_counted_twice;
            all.report("the update of task " + task + " is in " + std::to_string(count) + " aggregations");
        }
    for (const auto& [key, round] : all.rounds) {
        if (key.second == 0 || round->at("state") != "closed") continue;
        const std::string place = all.place(key.first, key.second);
        const auto found = all.aggregations.find(key);
        if (found == all.aggregations.end() || found->second->at("state") != "completed") {
            all.report(place + " is closed and was not aggregated");
            continue;
        }
        const Json& aggregation = *found->second;
        std::set<std::string> accepted = round->at("accepted");
        all.verdict.updates_accepted += static_cast<int>(accepted.size());
        const std::set<std::string> refused = members(round->at("refused"), "task");
        if (refused != members(aggregation.at("refused"), "task"))
            all.report(place + ": dispatch and aggregation refused different updates");
        accepted.insert(refused.begin(), refused.end());
        if (accepted != members(aggregation.at("updates"), "task"))
            all.report(place + ": the aggregation's updates are not those that were accepted");
        if (aggregation.at("version") != round->at("version_digest"))
            all.report(place + ": its version is not the aggregation's");
    }
}

std::string list_of_versions(const std::multiset<std::string>& versions) {
    std::string text;
    for (const std::string& version : versions) text += " " + version.substr(0, 12);
    return text;
}

// A global version is made of the accepted updates, each once, and their shares are one.
void check_contributions(Case& all) {
    std::map<std::pair<std::string, std::string>, const Json*> globals;  // by job and digest
    for (const Json& version : all.evidence.at("store").at("versions"))
        if (version.at("kind") == "global" && version.at("job").is_string())
            globals[{version.at("job"), version.at("digest")}] = &version;
    for (const auto& [key, round] : all.rounds) {
        if (key.second == 0 || round->at("state") != "closed") continue;
        const std::string place = all.place(key.first, key.second);
        const std::string digest = round->at("version_digest");
        const auto global = globals.find({key.first, digest});
        if (global == globals.end()) {
            all.report(place + ": its global version " + digest.substr(0, 12) + " is not in the store");
            continue;
        }
        if (global->second->at("round") != key.second) all.report(place + ": its global version is another round's");
        std::multiset<std::string> wanted;
        for (const std::string task : round->at("accepted"))
            if (all.tasks.contains(task)) wanted.insert(all.tasks.at(task)->at("result").at("version"));
        std::multiset<std::string> made_of;
        double sum = 0;
        for (const Json& part : global->second->at("contributions")) {
            made_of.insert(part.at("version"));
            sum += part.at("weight").get<double>();
        }
        if (made_of != wanted) {
            if (made_of.size() > wanted.size()) ++all.verdict.updates_counted_twice;
            all.report(place + ": the contributions are" + list_of_versions(made_of) + ", accepted were" +
                       list_of_versions(wanted));
        }
        if (std::abs(sum - 1) > 1e-6) all.report(place + ": the weights sum to " + std::to_string(sum));
    }
}

// The store keeps the updates of a job's two newest rounds, and everything else.
bool may_be_swept(const Json& version, const std::string& parent, const std::map<std::string, int>& newest) {
    if (version.at("parents").front() == parent || !version.at("job").is_string()) return false;
    const auto round = newest.find(version.at("job"));
    return round != newest.end() && version.at("round").get<int>() <= round->second - 2;
}

void check_versions(Case& all) {
    const Json& blobs = all.evidence.at("blobs");
    const Json& versions = all.evidence.at("store").at("versions");
    std::set<std::string> digests;
    std::map<std::string, int> newest;
    for (const Json& version : versions) {
        digests.insert(version.at("digest"));
        if (version.at("job").is_string() && version.at("round").is_number())
            newest[version.at("job")] = std::max(newest[version.at("job")], version.at("round").get<int>());
    }
    std::set<std::string> bad;
    for (const Json& version : versions) {
        const std::string digest = version.at("digest");
        const std::string name = version.at("model").get<std::string>() + "@" + digest.substr(0, 12);
        if (digest::sha256(version.at("manifest").dump()) != digest) all.report(name + ": its manifest is another's");
        for (const Json& file : version.at("manifest").at("files"))
            for (const Json& chunk : file.at("chunks")) {
                const std::string blob = chunk.at("sha256");
                const std::string is = blobs.value(blob, "not there");
                if (is != "whole" && bad.insert(blob).second) all.report(name + ": its blob " + blob + " is " + is);
            }
        for (const std::string parent : version.at("parents"))
            if (!digests.contains(parent) && !may_be_swept(version, parent, newest))
                all.report(name + ": its parent " + parent.substr(0, 12) + " is not there");
    }
}

// No batch job ran twice, none that dispatch does not know.
void check_batch_jobs(Case& all) {
    std::map<std::pair<std::string, int>, const Json*> attempts;
    std::set<std::string> names;
    for (const Json& attempt : all.evidence.at("dispatch").at("attempts")) {
        attempts[{attempt.at("task_id"), attempt.at("number")}] = &attempt;
        names.insert(attempt.at("batch_job_name"));
    }
    for (const auto& [facility, site] : all.evidence.at("sites").items()) {
        std::map<std::string, int> runs;
        for (const std::string start : site.at("starts")) ++runs[start];
        for (const auto& [run, count] : runs) {
            if (count > 1) all.report("at " + facility + ", " + run + " ran " + std::to_string(count) + " times");
            if (!names.contains(run.substr(0, run.find(' '))))
                all.report("at " + facility + ", " + run + " ran for no attempt that is known");
        }
        for (const Json& trained : site.at("trained")) {
            const std::string task = trained.at("task");
            const auto known = all.tasks.find(task);
            const auto attempt = attempts.find({task, trained.at("attempt")});
            if (known == all.tasks.end() || attempt == attempts.end()) {
                all.report("at " + facility + ", task " + task + " was trained and is not known");
                continue;
            }
            // A round that closed without it, or a job that ended, cancels it.
            const std::string step = attempt->second->at("step");
            if (step == "done" || step == "cancelled") continue;
            ++all.verdict.updates_lost;
            all.report("at " + facility + ", attempt " + trained.at("attempt").dump() + " of task " + task +
                       " was trained and not handed in: " + step + ", " +
                       attempt->second->at("error").get<std::string>());
        }
    }
}

void check_leftovers(Case& all) {
    const bool is_over = std::all_of(all.jobs.begin(), all.jobs.end(),
                                     [](const auto& job) { return is_final(job.second->at("state")); });
    for (const auto& [facility, site] : all.evidence.at("sites").items())
        if (is_over)
            for (const std::string what : site.at("left"))
                all.report("at " + facility + ", " + what + " is left of a job that is over");
    for (const char* service : {"dispatch", "aggregation", "store"}) {
        const Json& schema = all.evidence.at(service);
        for (const Json& event : schema.at("outbox"))
            all.report(std::string("the outbox of ") + service + " still holds " + event.at("id").get<std::string>());
        for (const Json& letter : schema.value("dead_letters", Json::array()))
            if (!letter.at("event_id").get<std::string>().starts_with("junk-"))  // that we have sent ourselves
                all.report(std::string(service) + " has the dead letter " + letter.at("event_id").get<std::string>() +
                           ": " + letter.at("error").get<std::string>());
    }
}

// Every event of a job is in Kafka, in its order; those that came again do not count.
void check_topics(Case& all) {
    std::set<std::pair<std::string, std::string>> known;  // topic and id
    std::map<std::pair<std::string, std::string>, std::vector<const Json*>> came;
    for (const Json& event : all.evidence.at("kafka"))
        if (known.emplace(event.at("topic"), event.at("id")).second)
            came[{event.at("topic"), event.at("key")}].push_back(&event);
    std::map<std::pair<std::string, std::string>, std::vector<const Json*>> wanted;
    for (const Json& event : all.evidence.at("dispatch").at("events")) {
        const bool is_closing = event.at("type") == "atoll.round.closed.v1";
        wanted[{is_closing ? "atoll.rounds" : "atoll.jobs", event.at("job_id")}].push_back(&event);
    }
    for (const auto& [where, events] : wanted) {
        const auto& [topic, job] = where;
        std::size_t at = 0;
        for (const Json* event : came[where])
            if (at < events.size() && event->at("type") == events[at]->at("type") &&
                event->at("data") == events[at]->at("data"))
                ++at;
        if (at < events.size())
            all.report(all.job_name(job) + ": its event " + events[at]->at("number").dump() + " (" +
                       events[at]->at("type").get<std::string>() + ") is not in Kafka where it should be");
        if (topic == "atoll.jobs" && came[where].size() > events.size())
            all.report(all.job_name(job) + " has " + std::to_string(came[where].size()) + " events in Kafka and " +
                       std::to_string(events.size()) + " in the database");
    }
}

}  // namespace

Verdict check_promises(const Json& evidence) {
    Case all(evidence);
    check_jobs(all);
    check_job_events(all);
    check_rounds(all);
    check_aggregations(all);
    check_contributions(all);
    check_versions(all);
    check_batch_jobs(all);
    check_leftovers(all);
    check_topics(all);
    return std::move(all.verdict);
}

}  // namespace atl::fault
