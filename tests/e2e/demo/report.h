#pragma once

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shared/json/json.h"

// What the demo shows at its end and writes to report.json.
namespace atl::demo {

// Token-weighted perplexity on each language's validation documents; NaN: not measured.
struct Perplexity {
    double it = std::numeric_limits<double>::quiet_NaN();
    double cs = std::numeric_limits<double>::quiet_NaN();

    double geometric_mean() const;
    double& of(const std::string& language) { return language == "it" ? it : cs; }
    double of(const std::string& language) const { return language == "it" ? it : cs; }
};

struct FacilityRound {
    std::string name;
    std::string language;  // of its own data
    std::int64_t steps = 0;
    std::int64_t tokens = 0;
    double loss = 0;  // mean over the round's steps
    double tokens_per_s = 0;
    Perplexity local;  // the facility's update of this round; not measured where updates travel as changes
    Perplexity solo;   // the facility training alone, after as many steps
};

struct RoundReport {
    std::int64_t round = 0;
    std::string model;  // digest of the aggregated version
    Perplexity global;
    std::vector<FacilityRound> facilities;
};

struct Report {
    std::string job;
    std::vector<std::pair<std::string, double>> wall_s;  // phase -> seconds, in order
    Perplexity base;
    std::vector<RoundReport> rounds;
    Perplexity pooled;                           // by Muon on all texts in one place, as many steps on as many rows
    Perplexity pooled_adamw;                     // the same by AdamW
    std::map<std::string, std::string> samples;  // language -> generated text
};

json::Json to_json(const Report& report);

// The table people read: a row a round, the solo models' and the global model's perplexity on each language.
std::string to_table(const Report& report);

struct Verdict {
    bool holds = false;
    std::string text;  // what is compared, with the numbers
};

// What a federation must give: each facility's solo model at least 3 times worse abroad than the global model, the
// global model better than both on the geometric mean, no worse than AdamW on the pooled text, and no
// round more than 5 % worse than the one before.
std::vector<Verdict> judge(const Report& report);

}  // namespace atl::demo
