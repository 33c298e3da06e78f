#include "tests/fault/fault_plan.h"

#include <random>
#include <utility>

namespace atl::fault {
namespace {

using std::chrono::milliseconds;

struct Kind {
    const char* kind;
    const char* target;
    int least_ms;  // it lasts at least so long,
    int most_ms;   // and at most
};

constexpr Kind kKinds[] = {
    {"kill", "registry", 100, 5000},
    {"kill", "store", 100, 5000},
    {"kill", "dispatch", 100, 5000},
    {"kill", "aggregation", 100, 5000},
    {"kill", "second dispatch", 100, 8000},
    {"kill", "second aggregation", 100, 8000},
    {"kill", "gateway", 100, 5000},
    {"kill", "gateway worker", 0, 0},  // the others start those of these two again themselves
    {"kill", "kafka", 100, 4000},
    {"kill", "postgres", 100, 4000},
    {"kill", "postgres backend", 0, 0},
    {"kill", "site stage", 0, 0},
    {"kill", "site push", 0, 0},
    {"kill", "site trainer", 0, 0},
    {"kill", "site job", 0, 0},
    {"freeze", "second dispatch", 5000, 9000},  // its lease ends after 4 s,
    {"freeze", "second aggregation", 5000, 9000},
    {"freeze", "dispatch", 16000, 20000},  // theirs after 15 s
    {"freeze", "aggregation", 16000, 20000},
    {"freeze", "registry", 1000, 8000},
    {"freeze", "store", 1000, 8000},
    {"freeze", "kafka", 1000, 12000},
    {"freeze", "postgres", 1000, 8000},
    {"freeze", "gateway", 1000, 8000},
    {"freeze", "site push", 1000, 8000},
    {"freeze", "site trainer", 1000, 8000},
    {"cut off", "registry", 1000, 6000},
    {"cut off", "store", 1000, 6000},
    {"cut off", "dispatch", 1000, 6000},
    {"cut off", "aggregation", 1000, 6000},
    {"cut off", "postgres", 1000, 6000},
    {"cut off", "kafka", 1000, 12000},
    {"cut from kafka", "second dispatch", 5000, 20000},
    {"cut from kafka", "second aggregation", 5000, 20000},
    {"cut off", "files of a site", 1000, 30000},  // a batch job that nobody has seen for 10 s counts as lost
    {"break", "store", 1000, 8000},
    {"fill", "store", 1000, 8000},
    {"fill", "disks of the sites", 1000, 8000},
    {"set clock of", "postgres", 1000, 10000},
    {"set clock of", "services", 1000, 10000},
    {"set clock of", "host", 1000, 10000},
    {"repeat", "events", 0, 0},
    {"repeat", "events", 0, 0},
};

// std::uniform_int_distribution differs between standard libraries.
int between(std::mt19937_64& random, int least, int most) {
    return least + static_cast<int>(random() % static_cast<std::uint64_t>(most - least + 1));
}

}  // namespace

std::vector<Fault> plan_faults(std::uint64_t seed, milliseconds duration) {
    constexpr int kPauseLeast_ms = 1000;
    constexpr int kPauseMost_ms = 5500;
    std::mt19937_64 random(seed);
    std::vector<Fault> faults;
    std::vector<Kind> left;
    for (milliseconds at(between(random, 0, kPauseMost_ms)); at < duration;
         at += milliseconds(between(random, kPauseLeast_ms, kPauseMost_ms))) {
        if (left.empty()) left.assign(std::begin(kKinds), std::end(kKinds));
        std::swap(left[random() % left.size()], left.back());
        const Kind& kind = left.back();
        const milliseconds lasts(between(random, kind.least_ms, kind.most_ms));
        faults.push_back({at, kind.kind, kind.target, lasts, random()});
        left.pop_back();
    }
    return faults;
}

}  // namespace atl::fault
