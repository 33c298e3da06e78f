#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility_check.h"

namespace atl::dispatch {

// A short job of a facility's check: `atoll-trainer report` by the template, the image and the launcher of a training.
struct CheckJob {
    std::string id;
    Resources resources = {};
};

// "queued", "running", or "ended" with what it found.
struct CheckJobSeen {
    std::string state;
    std::string reason = {};  // the batch system's, why it waits or how it ended
    std::vector<CheckRow> rows = {};
};

// What such a job asks for, of a request's {queue, gpus_per_node}: two nodes, or two ranks on one where the queue has
// no more or the launcher is for one.
Result<Resources> parse_check_job(const json::Json& value, const Facility& facility);

// What an ended job has found; `said`: the end of its standard error, or the batch system's word where it never began.
// Pure.
std::vector<CheckRow> judge_check_job(const std::vector<std::string>& lines, std::optional<std::int64_t> exit_code,
                                      const std::string& said, const Facility& facility);

}  // namespace atl::dispatch
