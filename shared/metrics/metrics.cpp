#include "shared/metrics/metrics.h"

#include <prometheus/family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <set>

#include "shared/base/check.h"

namespace atl::metrics {
namespace {

const prometheus::Histogram::BucketBoundaries& boundaries(Buckets buckets) {
    static const prometheus::Histogram::BucketBoundaries kMinute = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                                    0.25,  0.5,   1,    2.5,   10,   60};
    static const prometheus::Histogram::BucketBoundaries kFourHours = {0.01, 0.1, 0.5, 1,    2.5,  5,    10,
                                                                       30,   60,  300, 1200, 3600, 14400};
    static const prometheus::Histogram::BucketBoundaries kWeek = {1,    10,    60,    300,   900,    1800,
                                                                  3600, 14400, 43200, 86400, 259200, 604800};
    switch (buckets) {
        case Buckets::kFourHours:
            return kFourHours;
        case Buckets::kWeek:
            return kWeek;
        case Buckets::kMinute:
            break;
    }
    return kMinute;
}

// A programmer's error, which the first test that gets there finds.
void check_row(const Metric& metric, Type type, const Labels& labels) {
    check(metric.type == type, "a metric is used as its row says");
    const auto is_declared = [&](const auto& label) { return std::ranges::count(metric.labels, label.first) == 1; };
    const auto declared = std::ranges::count_if(metric.labels, [](std::string_view label) { return !label.empty(); });
    check(static_cast<std::ptrdiff_t>(labels.size()) == declared && std::ranges::all_of(labels, is_declared),
          "a metric has the labels of its row");
}

template <class Builder>
auto& family(Builder builder, const Metric& metric, prometheus::Registry& registry) {
    return builder.Name(std::string(metric.name)).Help(std::string(metric.help)).Register(registry);
}

const char* name_of(Type type) {
    return type == Type::kCounter ? "counter" : type == Type::kGauge ? "gauge" : "histogram";
}

}  // namespace

prometheus::Counter& Registry::counter(const Metric& metric, const Labels& labels) {
    check_row(metric, Type::kCounter, labels);
    return family(prometheus::BuildCounter(), metric, *registry_).Add(labels);
}

prometheus::Gauge& Registry::gauge(const Metric& metric, const Labels& labels) {
    check_row(metric, Type::kGauge, labels);
    return family(prometheus::BuildGauge(), metric, *registry_).Add(labels);
}

prometheus::Histogram& Registry::histogram(const Metric& metric, const Labels& labels) {
    check_row(metric, Type::kHistogram, labels);
    return family(prometheus::BuildHistogram(), metric, *registry_).Add(labels, boundaries(metric.buckets));
}

void Registry::set_all(const Metric& metric, const std::vector<Sample>& samples) {
    std::map<Labels, prometheus::Gauge*> now;
    for (const Sample& sample : samples) {
        prometheus::Gauge& one = gauge(metric, sample.labels);
        one.Set(sample.value);
        now[sample.labels] = &one;
    }
    auto& before = replaced_[metric.name];
    for (const auto& [labels, one] : before)
        if (!now.contains(labels)) family(prometheus::BuildGauge(), metric, *registry_).Remove(one);
    before = std::move(now);
}

void Registry::on_expose(std::function<void()> look) {
    const std::lock_guard lock(mutex_);
    looks_.push_back(std::move(look));
}

std::string Registry::expose(std::span<const std::span<const Metric>> tables) const {
    {
        const std::lock_guard lock(mutex_);
        for (const auto& look : looks_) look();
    }
    const auto families = registry_->Collect();
    std::set<std::string_view> served;
    for (const auto& one : families) served.insert(one.name);
    std::string text = prometheus::TextSerializer().Serialize(families);
    for (const auto& table : tables)
        for (const Metric& metric : table) {
            if (served.contains(metric.name)) continue;
            const std::string name(metric.name);
            text += "# HELP " + name + " " + std::string(metric.help) + "\n# TYPE " + name + " " +
                    name_of(metric.type) + "\n";
        }
    return text;
}

}  // namespace atl::metrics
