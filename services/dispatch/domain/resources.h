#pragma once

#include <cstdint>
#include <string>

#include "shared/json/json.h"

namespace atl::dispatch {

// What one batch job asks of its site. 0 or empty: what the queue gives by itself.
//
//   {"queue": "gpu", "nodes": 2, "tasks_per_node": 4, "cores_per_task": 8, "gpus_per_node": 4, "memory": "480GiB",
//    "time": "2:00:00"}
struct Resources {
    std::string queue = {};  // a name of the facility's record, never the site's own word; empty: its default_queue
    std::int64_t nodes = 1;
    std::int64_t tasks_per_node = 1;  // ranks; of an evaluation or a tokenisation, which have one process, always 1
    std::int64_t cores_per_task = 0;
    std::int64_t gpus_per_node = 0;
    std::int64_t memory_mib = 0;  // a node
    std::int64_t time_s = 0;      // wall clock

    std::int64_t ranks() const { return nodes * tasks_per_node; }
    bool operator==(const Resources&) const = default;
};

// Fields are named below `field`, as "participants[0].resources".
Result<Resources> parse_resources(const json::Json& value, const std::string& field);
json::Json to_json(const Resources& resources);

// So long before the end of its time a job is told to save and end: what a step and saving may take, but a fifth of the
// time at most.
std::int64_t notice_s(std::int64_t time_s);

// "2:00:00" of 7200, "1-06:30:00" of 30.5 hours, as Slurm reads and writes it. Takes minutes alone and M:SS, too.
std::string time_text(std::int64_t seconds);
Result<std::int64_t> parse_time(const std::string& text, const std::string& field);

}  // namespace atl::dispatch
