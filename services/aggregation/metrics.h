#pragma once

#include "shared/metrics/metrics.h"

namespace atl::aggregation {

using metrics::Metric, metrics::Type;

inline constexpr metrics::Table kMetrics{
    Metric{"atoll_aggregation_parts_total", Type::kCounter, "", "Parts of models that were averaged and stored"},
    Metric{"atoll_aggregation_written_bytes_total", Type::kCounter, "bytes", "Bytes of those parts"},
    Metric{"atoll_aggregation_leases_lost_total", Type::kCounter, "",
           "Results discarded because another worker had taken over the work"},
    Metric{"atoll_aggregation_failures_total", Type::kCounter, "", "Failed work, including what is retried"},
    Metric{"atoll_aggregation_workers", Type::kGauge, "", "Threads that aggregate"},
};

}  // namespace atl::aggregation
