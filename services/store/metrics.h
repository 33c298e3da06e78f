#pragma once

#include "shared/metrics/metrics.h"

namespace atl::store {

using metrics::Metric, metrics::Type;

inline constexpr metrics::Table kMetrics{
    Metric{"atoll_store_received_bytes_total", Type::kCounter, "bytes", "Bytes of new blobs"},
    Metric{"atoll_store_sent_bytes_total", Type::kCounter, "bytes",
           "Bytes of blobs that were handed out, also by the gateway"},
    Metric{"atoll_store_bodies_refused_total", Type::kCounter, "",
           "Bodies that were refused because too many were in hand"},
    Metric{"atoll_store_blobs", Type::kGauge, "", "Blobs that are held, counted once an hour"},
    Metric{"atoll_store_blobs_bytes", Type::kGauge, "bytes", "Their bytes"},
    Metric{"atoll_store_blobs_swept_total", Type::kCounter, "", "Blobs that were removed as no version needs them"},
    Metric{"atoll_store_blobs_scrubbed_total", Type::kCounter, "", "Blobs that were compared with their names"},
    Metric{"atoll_store_blobs_damaged", Type::kGauge, "", "Blobs whose bytes no longer match their name"},
    Metric{"atoll_store_disk_size_bytes", Type::kGauge, "bytes", "Size of the file system of the blobs"},
    Metric{"atoll_store_disk_free_bytes", Type::kGauge, "bytes", "Free space on the file system of the blobs"},
    Metric{"atoll_store_disk_reserve_bytes", Type::kGauge, "bytes", "Free space below which uploads are refused"},
};

}  // namespace atl::store
