#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shared/aggregate/aggregator.h"
#include "shared/base/result.h"
#include "shared/store_client/manifest.h"

// What an aggregation is, for the service that makes it and for whoever makes it again: pure functions, no database and
// no network.
namespace atl::round {

// One update that counts in a round.
struct Update {
    std::string facility;
    std::string task;
    std::string version;  // digest
    std::int64_t samples = 0;
    std::int64_t tokens = 0;
    aggregate::Assignment assigned = {};  // by dispatch, whatever its site says
};

// An update that was left out of its round.
struct RefusedUpdate {
    Update update;
    std::string reason;
    bool is_sites_fault = true;  // false: the store has lost or damaged it
};

// A participant without an update in a round, which counts as one that changes nothing.
struct AbsentSite {
    std::string facility;
    std::int64_t tokens = 0;              // of its last update
    aggregate::Assignment assigned = {};  // likewise
};
inline constexpr std::int64_t kAbsentRoundsMax = 2;  // in a row; after them its absence counts for nothing
// Of a round with so many updates they alone tell what is usual; of one with fewer so many rounds before it, too.
inline constexpr std::int64_t kManyUpdates = 16;
inline constexpr std::int64_t kEarlierRoundsMax = 10;

// The data of atoll.round.closed.v1.
struct ClosedRound {
    std::string job;
    std::int64_t round = 0;
    std::string model;  // where the result goes
    std::string base;   // digest of the round's base version
    aggregate::StrategySpec strategy;
    std::vector<Update> updates;         // by facility and task, so that the order in which they came changes no bit
    std::string optimizer_state;         // digest of what the strategy left that made the base; empty: none
    bool base_is_jobs = false;           // one of its rounds made the base; false: somebody handed it in
    std::size_t quorum = 0;              // updates that are needed; the others may turn out to be of no use
    std::vector<RefusedUpdate> refused;  // those that did, by facility and task; no longer among `updates`
    std::vector<double> statistics;      // the sums over all parts; empty until they have been measured
    std::vector<aggregate::EarlierNorm> earlier;  // of the job's last rounds
    std::vector<std::string> missing;  // facilities that take part and have no update, where the strategy counts them
    std::vector<AbsentSite> absent;    // those of them that had one in the last kAbsentRoundsMax rounds
};

// kInvalidArgument naming the field: also an unknown strategy, no updates at all, or a task that counts twice.
Result<ClosedRound> parse_closed_round(const nlohmann::json& data);
nlohmann::json to_json(const std::vector<Update>& updates);
// [{facility, task, version, reason, fault}], the fault the "site"'s or the "store"'s
nlohmann::json to_json(const std::vector<RefusedUpdate>& refused);

// Leaves out the updates of these tasks: to_json()'s list of an earlier plan.
Status leave_out(ClosedRound& round, const nlohmann::json& refused);

// What earlier rounds counted, from their rows: [{contributions, updates}]. What a row lacks is passed over.
void take_earlier(ClosedRound& round, const nlohmann::json& rows);

// Finds what the missing handed in last, from the rows of the rounds before, the newest first: [{updates, refused}].
void take_absent(ClosedRound& round, const nlohmann::json& rows);

// The round as its aggregation took it, from what the service shows of its job's aggregations, those of the rounds
// before it among them: Aggregation of services/aggregation/openapi.json, in any order. The updates of `without` are
// left out as if they had been refused. kNotFound: none is of that round, or one of `without` has no update in it that
// counts.
Result<ClosedRound> rebuild_round(const nlohmann::json& aggregations, std::int64_t number,
                                  const std::set<std::string>& without = {});

// A part's statistics as its row keeps them: of each sum its terms. kInternal where a row holds something else.
nlohmann::json to_json(const std::vector<aggregate::ExactSum>& statistics);
Status add_statistics(std::vector<aggregate::ExactSum>& sums, const nlohmann::json& part);
// That of the model, from what its parts lost: lists of two sums.
Result<double> relative_error(const std::vector<nlohmann::json>& lost);

// One weight an update, as its strategy says; they need not sum to one. Where all of them would be zero they are equal:
// what sites claim never ends a round.
struct Weights {
    std::vector<double> updates;
    std::vector<double> absent;  // one an absent site
};
Weights averaging_weights(const ClosedRound& round);

// What the version says about who made it: facility, version, its share of the result as "weight", samples, tokens, and
// where that was measured its norm, its cosine to the mean of the others, and the part of its change that counted; also
// the norm of its control variate and the part of it that counted.
nlohmann::json contributions(const ClosedRound& round, const aggregate::Prepared& prepared);

// "the update of leonardo (3fa9c1…)", for messages.
std::string describe(const Update& update);

// A range of one output file that is made by one worker and becomes one chunk of the manifest.
struct Part {
    std::string path;
    std::uint64_t begin = 0;  // bytes from the start of the file
    std::uint64_t size = 0;
    std::string sha256;  // empty until it is made
};

// Cuts the output files into parts of part_bytes (the last of each file may be shorter), in order.
std::vector<Part> cut_into_parts(const std::vector<aggregate::Aggregator::OutputFile>& files, std::uint64_t part_bytes);

// The version: the base with these parts in place of its tensors, and with the mean of the control variates if there
// are parts of it. No facility decides a file's name, the index, another's configuration or tokenizer.
store_client::Manifest assemble(const store_client::Manifest& base, const std::vector<Part>& parts);
// What the strategy keeps for the next round, a folder a state: the parts that are of no file of the base.
store_client::Manifest assemble_optimizer_state(const store_client::Manifest& base, const std::vector<Part>& parts);

// Where what was made first differs from a model that is cut into the same chunks: "model.safetensors differs in bytes
// 0 to 8388607", "it has no config.json"; empty: nowhere.
std::string first_difference(const store_client::Manifest& made, const store_client::Manifest& model);

bool is_safetensors(const std::string& path);

}  // namespace atl::round
