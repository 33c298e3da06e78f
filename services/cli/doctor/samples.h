#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace atl::cli {

// One line of what a service serves to Prometheus.
struct Sample {
    std::string metric;
    std::map<std::string, std::string> labels;
    double value = 0;
};

// Of Prometheus' text format; comments, and lines that are none of it, are left out.
std::vector<Sample> read_samples(std::string_view exposition);

}  // namespace atl::cli
