#pragma once

#include <string>
#include <vector>

#include "shared/json/json.h"

namespace atl::fault {

// What the promises of Atoll say of a run that is over, looked at in what it has left behind (evidence.h).
struct Verdict {
    std::vector<std::string> broken;  // a line each: what is wrong with which job, round, task, blob
    int updates_accepted = 0;
    int updates_lost = 0;  // finished trainings that were handed in nowhere, without a reason that we accept
    int updates_counted_twice = 0;
};
Verdict check_promises(const json::Json& evidence);

}  // namespace atl::fault
