#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Metrics as Prometheus reads them. What a program serves is declared in a table, from which /metrics takes help and
// type and docs/reference/metrics.md is made.
namespace atl::metrics {

using Labels = std::map<std::string, std::string>;

enum class Type { kCounter, kGauge, kHistogram };
enum class Buckets { kMinute, kFourHours, kWeek };  // of a histogram of seconds: from 1 ms, 10 ms and 1 s up to that

// One row of a table. `help` is one sentence without a full stop.
struct Metric {
    static constexpr std::size_t kLabelsMax = 4;
    std::string_view name;
    Type type;
    std::string_view unit;  // the name ends in it, before `_total`; empty: a count
    std::string_view help;
    std::array<std::string_view, kLabelsMax> labels = {};
    Buckets buckets = Buckets::kMinute;

    bool operator==(const Metric&) const = default;
};

// A table, whose rows are named when the program is compiled: kTable["atoll_no_such_total"] does not compile.
template <std::size_t count>
struct Table {
    std::array<Metric, count> rows;

    consteval const Metric& operator[](std::string_view name) const {
        for (const Metric& row : rows)
            if (row.name == name) return row;
        throw "the table has no such metric";
    }
};
template <class... Rows>
Table(Rows...) -> Table<sizeof...(Rows)>;

struct Sample {
    Labels labels;
    double value = 0;
};

// Thread-safe. Asking again for the same metric and labels gives the same counter. The labels are those of the row.
//
//   metrics::Registry metrics;
//   auto& parts = metrics.counter(kMetrics["atoll_aggregation_parts_total"]);
//   parts.Increment();
class Registry {
  public:
    prometheus::Counter& counter(const Metric& metric, const Labels& labels = {});
    prometheus::Gauge& gauge(const Metric& metric, const Labels& labels = {});
    prometheus::Histogram& histogram(const Metric& metric, const Labels& labels = {});
    // Makes these the only series of a gauge, so that what is gone is served no longer. One thread at a time, and no
    // gauge() for the same metric.
    void set_all(const Metric& metric, const std::vector<Sample>& samples);
    // Called before each exposition, to set what is only then looked at.
    void on_expose(std::function<void()> look);

    // Text format 0.0.4: all series, and help and type of each row of the tables, also of those without a series.
    std::string expose(std::span<const std::span<const Metric>> tables = {}) const;

  private:
    std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
    std::map<std::string_view, std::map<Labels, prometheus::Gauge*>> replaced_;  // by set_all()
    mutable std::mutex mutex_;
    std::vector<std::function<void()>> looks_;
};

}  // namespace atl::metrics
