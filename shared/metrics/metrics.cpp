#include "shared/metrics/metrics.h"

#include <prometheus/family.h>
#include <prometheus/text_serializer.h>

namespace atl::metrics {

prometheus::Counter& Registry::counter(const std::string& name, const std::string& help, const Labels& labels) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Gauge& Registry::gauge(const std::string& name, const std::string& help, const Labels& labels) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Histogram& Registry::seconds(const std::string& name, const std::string& help, const Labels& labels) {
    static const prometheus::Histogram::BucketBoundaries kBuckets = {
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0};
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_).Add(labels, kBuckets);
}

std::string Registry::expose() const {
    return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace atl::metrics
