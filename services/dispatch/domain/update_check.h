#pragma once

#include <cstdint>
#include <string>

#include "services/dispatch/domain/site_output.h"
#include "shared/aggregate/strategy.h"
#include "shared/json/json.h"

// A site is believed only as far as what it says can be: its numbers weigh its update.
namespace atl::dispatch {

struct UpdateLimits {
    double samples = 0;
    double tokens = 0;
    std::int64_t steps = 0;
    std::int64_t samples_per_step = 0;  // of all ranks together
};

// The most that a training with these settings can see of a dataset version of `rows` rows of `seq_len` tokens. An
// error: the trainer would not take them.
Result<UpdateLimits> update_limits(const json::Json& training, std::int64_t ranks, std::int64_t rows,
                                   std::int64_t seq_len);

// A dataset version as its site says that it is.
struct DatasetSize {
    std::int64_t rows = 0;
    std::int64_t seq_len = 0;
};

// What a round of so many updates takes for the data of one of them. A site says how many rows it has.
struct BelievedSize {
    DatasetSize weighed;         // no more than the lower median of the updates has
    std::int64_t compared_rows;  // of three and more no more than ten times that, as an invented one would count as far
};

// What a training with these settings is given to do, for the aggregation to compare how far updates go and what they
// weigh. Where it trains for epochs its steps follow from its data, as far as these are believed; what its optimizer
// can move follows from all of them. Settings that the trainer would not take give what is not known.
aggregate::Assignment assigned_work(const json::Json& training, std::int64_t ranks, const DatasetSize& own,
                                    const BelievedSize& believed);

// `samples` and `tokens` of the trainer's summary: they are there, within the limits, and not zero where there are
// steps.
Status check_counts(const SummaryLine& summary, const UpdateLimits& limits);

// A training that saw fewer samples in a step than its ranks make together has run on fewer of them.
Status check_ranks(const SummaryLine& summary, const UpdateLimits& limits, std::int64_t ranks);

// What the store knows of the version that a site says it has pushed: an update whose only parent is the base. Its job
// and round are not looked at, as they are those of whoever pushed these bytes first: two jobs that train alike make
// the same update, and where it was the only one of its round it is a global model by now. `may_be_change`: the job's
// updates hold the change of the base alone. No refusal (is_refusal) is the error that what the store says cannot be
// read.
Status check_version(const json::Json& version, const std::string& base, bool may_be_change);

}  // namespace atl::dispatch
