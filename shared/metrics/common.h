#pragma once

#include "shared/metrics/metrics.h"

// What every service serves beside what is its own.
namespace atl::metrics {

inline constexpr Table kCommon{
    Metric{"atoll_build_info",
           Type::kGauge,
           "",
           "The program's version and, in our images, the git revision that it was built from; always 1",
           {"version", "revision"}},
    Metric{"atoll_http_requests_total",
           Type::kCounter,
           "",
           "Requests answered, by route pattern",
           {"method", "route", "status"}},
    Metric{"atoll_http_request_duration_seconds",
           Type::kHistogram,
           "seconds",
           "Time from a request's last byte to its answer",
           {"method", "route"}},
    Metric{"atoll_ready",
           Type::kGauge,
           "",
           "1 if the dependency works: postgres answers; kafka answers and events flow; the gateway answers (seen by "
           "dispatch)",
           {"dependency"}},
    Metric{"atoll_certificate_expiry_timestamp_seconds",
           Type::kGauge,
           "seconds",
           "Expiry of a certificate, as Unix time: kafka, which the service presents to the broker; gateway, which "
           "sites see "
           "(dispatch)",
           {"use"}},
    Metric{"atoll_token_expiry_timestamp_seconds",
           Type::kGauge,
           "seconds",
           "Expiry of a token that the service presents to others, as Unix time",
           {"token"}},
    Metric{"atoll_pg_pool_connections",
           Type::kGauge,
           "",
           "Connections to PostgreSQL: lent to some work, or open and idle",
           {"state"}},
    Metric{"atoll_pg_pool_connections_max", Type::kGauge, "",
           "Maximum number of those connections (postgres_connections)"},
    Metric{"atoll_pg_pool_waiters", Type::kGauge, "", "Threads waiting for one of those connections"},
    Metric{"atoll_pg_pool_wait_seconds_total", Type::kCounter, "seconds",
           "Time that threads spent waiting for one of those connections"},
    Metric{"atoll_outbox_sent_total", Type::kCounter, "", "Events that Kafka confirmed"},
    Metric{"atoll_outbox_failures_total", Type::kCounter, "", "Attempts to send events that failed"},
    Metric{"atoll_outbox_held_back_total", Type::kCounter, "",
           "Polls of the outbox that found only events newer than an open transaction"},
    Metric{"atoll_outbox_waiting", Type::kGauge, "", "Events that Kafka has not confirmed"},
    Metric{"atoll_outbox_lag_seconds", Type::kGauge, "seconds", "Age of the oldest of them; 0: there is none"},
    Metric{"process_cpu_seconds_total", Type::kCounter, "seconds", "User and system CPU time of the process"},
    Metric{"process_resident_memory_bytes", Type::kGauge, "bytes", "Resident memory of the process"},
    Metric{"process_virtual_memory_bytes", Type::kGauge, "bytes", "Virtual memory of the process"},
    Metric{"process_open_fds", Type::kGauge, "", "Open file descriptors of the process"},
    Metric{"process_max_fds", Type::kGauge, "", "The limit of open file descriptors"},
    Metric{"process_threads", Type::kGauge, "", "Threads of the process"},
    Metric{"process_start_time_seconds", Type::kGauge, "seconds", "When the process started, as Unix time"},
};

// Of services that take events from Kafka.
inline constexpr Table kInbox{
    Metric{"atoll_inbox_events_total", Type::kCounter, "", "Events received, by result", {"consumer", "result"}},
    Metric{"atoll_inbox_dead_letters",
           Type::kGauge,
           "",
           "Events that their handler refused and that were not replayed",
           {"consumer"}},
    Metric{"atoll_inbox_lag_messages",
           Type::kGauge,
           "messages",
           "Events at the broker that have not been received yet",
           {"consumer"}},
    Metric{"atoll_inbox_lag_seconds",
           Type::kGauge,
           "seconds",
           "How long events have waited and none has taken effect",
           {"consumer"}},
    Metric{"atoll_pruned_rows_total", Type::kCounter, "", "Old rows that were deleted", {"table"}},
};

}  // namespace atl::metrics
