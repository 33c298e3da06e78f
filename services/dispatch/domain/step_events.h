#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "services/dispatch/domain/site_output.h"
#include "shared/json/json.h"

// How a training's steps are told: all of them as far as that is a bounded number, and whatever a site prints. Pure.
namespace atl::dispatch {

// So many steps of a task are told one by one. After as many points again each stands for a hundred steps, then for ten
// thousand: a gigabyte of step lines comes to some 200,000 points.
constexpr std::int64_t kPointsMax = 100'000;
constexpr std::int64_t kBucketFactor = 100;
constexpr std::size_t kPointsOfEventMax = 1000;  // some 100 kB; Kafka takes 1 MB

// The data of atoll.task.progress.v1 that tell of `lines`, in order, beside what each event of a task has: the newest
// step's values, and where there are more steps "points", a column for each value that some of them have, null where a
// step has none. A point of several steps has their number ("steps"), their means, "loss_min" and "loss_max".
// `points_told` counts the task's points, over all its attempts.
std::vector<json::Json> progress_events(const std::vector<StepLine>& lines, std::int64_t& points_told);

// The newest step once `lines` (one at least) have come after `before`. A validation is of the newest step or of an
// earlier one: it stays until the next.
StepLine newest_step(const std::optional<StepLine>& before, const std::vector<StepLine>& lines);

}  // namespace atl::dispatch
