#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/dispatch/domain/facility.h"

namespace atl::dispatch {

enum class CheckState { kOk, kWarn, kFail, kSkipped };

// One thing that a facility's check looks at.
struct CheckRow {
    std::string name;
    CheckState state = CheckState::kOk;
    std::string seen;  // of what was not looked at: why
    std::string mend;  // what to run or do; empty where nothing is wrong
};
json::Json to_json(const CheckRow& row);

// What a site has told, by key, in order: of lines KEY TAB VALUE.
using SiteFacts = std::multimap<std::string, std::string, std::less<>>;
SiteFacts read_facts(std::string_view text);

// What of its surroundings a check is judged by.
struct CheckSetting {
    std::string store_url;
    std::string version;          // of the coordinator's programs
    std::string launcher;         // of ranks, the record's or the batch system's own
    double asked_s = 0;           // by the coordinator's clock: before the site was asked,
    double answered_s = 0;        // and when it had answered
    bool is_through_ssh = false;  // the facility's data comes through ssh: it need not reach the store
};

// What the batch system says of the facility's queues, by their names in its record.
using FoundLimits = std::map<std::string, Result<QueueLimits>>;

struct SiteJudgement {
    std::vector<CheckRow> rows;  // in the order in which people read them
    // Why the batch system gives no answer; empty: it gives one. Nothing: it has none, or was not asked.
    std::optional<std::string> no_batch_answer;
};
// What check.sh has told of a login node. Pure.
SiteJudgement judge_site(const SiteFacts& facts, const FoundLimits& limits, const Facility& facility,
                         const CheckSetting& setting);

// What lies at a site and nobody removes but a person.
struct Leftovers {
    std::vector<std::string> tasks;  // that this coordinator does not know, as after its data was lost or restored
    std::vector<std::string> kept;   // jobs that it does not know, or that have ended, whose state lies in kept/
};
// Nothing where there is none.
std::optional<CheckRow> judge_leftovers(const Facility& facility, const Leftovers& leftovers);

// The same rows where nothing could be asked.
std::vector<CheckRow> skip_site(const Facility& facility, const std::string& why);

}  // namespace atl::dispatch
