#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/round_machine.h"

// Whether a round has spoiled the model, by what its participants' evaluations say. Pure functions.
namespace atl::dispatch {

// How one participant judges a round's model on its own data. An infinite perplexity is too large for a number.
struct Judgement {
    std::string facility;
    double before = 0;          // perplexity of the model that the round began with, or of the best one before it
    double after = 0;           // of the one that it made
    std::int64_t at_round = 0;  // whose model `before` is of
    double times() const { return after / before; }
};

struct SpoiledModel {
    Round round;                        // that made it
    std::int64_t good_round = 0;        // whose model was good
    std::vector<Judgement> judgements;  // of those who have evaluated both models
};

// The first round that is closed, not judged before, and whose model is worse than the one it began with, or than the
// best one before it, since what gets worse little by little is spoiled too: by half at a majority of the participants
// that are left, or, of two, three times at one of them. Alone no site of three or more can bring that about. Nothing
// where the job does not look (JobSpec::pauses_when_worse()).
std::optional<SpoiledModel> find_spoiled_model(const JobView& job);

// The facility whose update clearly stands out in a round: the one of which least counts, else, of three or more, the
// one that points away from the others, else the one whose control variate, else the one that is longer by far than any
// other. Empty: none does, or of two the one's change and the other's control variate.
std::string find_outlier(const Round& round);

// What people read of it.
std::string describe(const JobView& job, const SpoiledModel& spoiled);
// What the job keeps of it, and shows: {round, good_round, version, sites: [{facility, before, after}], updates,
// outlier, reason}; `after` and `before` null where they are infinite.
json::Json to_json(const JobView& job, const SpoiledModel& spoiled);

// What this evaluated round's judgements make of the records: each participant's best model until now.
std::map<std::string, Record> best_models(const JobView& job, const Round& round);

// How many evaluations of a round may end before they can say that its model is spoiled.
std::int64_t quiet_judgements(const JobView& job, const Round& round);

}  // namespace atl::dispatch
