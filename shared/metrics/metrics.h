#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <string>

// prometheus-cpp, with one registry a process and its text exposition.
namespace atl::metrics {

using Labels = std::map<std::string, std::string>;

// Thread-safe. Asking again for the same name and labels gives the same metric.
//
//   metrics::Registry metrics;
//   auto& parts = metrics.counter("atoll_aggregation_parts_total", "Parts that were averaged and stored");
//   parts.Increment();
class Registry {
  public:
    prometheus::Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
    prometheus::Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
    // Seconds, buckets from 1 ms to 60 s.
    prometheus::Histogram& seconds(const std::string& name, const std::string& help, const Labels& labels = {});
    std::string expose() const;  // text format 0.0.4

  private:
    std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
};

}  // namespace atl::metrics
