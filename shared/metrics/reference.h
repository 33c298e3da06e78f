#pragma once

#include <span>
#include <string>
#include <vector>

#include "shared/metrics/metrics.h"

namespace atl::metrics {

// The rows under a heading, as a table in Markdown.
std::string describe_table(const std::string& heading, std::span<const Metric> rows);

// What is wrong with the rows, one sentence each: names that break Prometheus' conventions, labels that could hold ids,
// help that is missing or ends in a full stop, a name that is there twice.
std::vector<std::string> table_faults(std::span<const Metric> rows);

}  // namespace atl::metrics
