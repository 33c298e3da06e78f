#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/json/json.h"

namespace atl::fault {

// All that a run has left behind, as check_promises() wants it:
//   "submitted"     what was asked for (job_load.h)
//   "dispatch"      {"jobs", "rounds", "tasks", "attempts", "events": rows of these tables, "outbox", "dead_letters"}
//   "aggregation"   {"aggregations": rows, "outbox", "dead_letters"}
//   "store"         {"versions": as its REST API shows them, with "model" and "manifest", "outbox"}
//   "blobs"         {name: "whole" | "damaged"} of those that the manifests name; one that is not there is left out
//   "kafka"         [{"topic", "key", "id", "type", "data"}] in the order of each partition
//   "sites"         {facility: {"starts": [lines of `runs`], "trained": [attempts whose batch job ended with 0],
//                   "left": [models and outputs that lie there]}}
// The stack must be up. Reads only.
Result<json::Json> read_evidence(const std::filesystem::path& directory);

// {name: "whole" | "damaged"} of the blobs below a store's root that stand in `names`.
json::Json examine_blobs(const std::filesystem::path& root, const json::Json& names);

}  // namespace atl::fault
