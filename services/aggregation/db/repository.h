#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shared/http/message.h"
#include "shared/pg/lease.h"
#include "shared/round/closed_round.h"

// The service's tables. Functions that end a piece of work answer false when the claim is stale: another worker took
// the work over, or the aggregation has ended; then nothing was changed.
namespace atl::aggregation {

enum class Step { kPlan, kMeasure, kPrepare, kPart, kPublish };

// A leased piece of work.
struct Claim {
    Step step = Step::kPart;
    std::int64_t aggregation = 0;
    std::int64_t plan = 0;  // how many updates had been left out when the work was laid out
    pg::Lease lease = {};
    std::int64_t attempts = 0;    // this one included
    std::int64_t deaths = 0;      // of processes that died over it, one after the other
    bool is_after_death = false;  // the last one has not been waited after
    std::int64_t number = 0;      // of the part; kMeasure and kPart only
    round::Part part = {};        // kMeasure and kPart only

    bool is_of_part() const { return step == Step::kMeasure || step == Step::kPart; }
};

// A part that the store has.
struct MadePart {
    MadePart(std::string digest, nlohmann::json loss = {}) : sha256(std::move(digest)), lost(std::move(loss)) {}
    std::string sha256;
    nlohmann::json lost;  // of the adapters in it: aggregate::Truncation, as to_json() writes statistics; null: none
};

// What an aggregation gave: digests.
struct Published {
    std::string version;
    std::string optimizer_state;  // empty without a server optimizer
};

// False if the round is being aggregated or has been.
Result<bool> insert_aggregation(pg::Transaction& transaction, const round::ClosedRound& round);

std::vector<const pg::LeaseTable*> lease_tables();
// The next piece of work that nobody holds: what finishes an aggregation first.
Result<std::optional<Claim>> claim_work(pg::Connection& connection, const pg::LeaseTerms& terms);
// Gives work back that could not be done now. A failure that is not the work's own does not count as an attempt.
Status release(pg::Connection& connection, const Claim& claim, std::chrono::seconds pause, bool counts);

// With the optimizer's state that came with the round's base, and without the updates that were left out.
Result<round::ClosedRound> load_round(pg::Connection& connection, std::int64_t aggregation);
// The aggregation's parts in order.
Result<std::vector<round::Part>> load_parts(pg::Connection& connection, std::int64_t aggregation);

// What was measured of each part, or what was lost in making it, as they keep it.
Result<std::vector<nlohmann::json>> load_statistics(pg::Connection& connection, std::int64_t aggregation);

// `contributions`: where they are known without a look at the updates; null: the parts are to be measured first.
Result<bool> save_plan(pg::Transaction& transaction, const Claim& claim, const std::vector<round::Part>& parts,
                       const nlohmann::json& contributions);
Result<bool> save_measured(pg::Transaction& transaction, const Claim& claim, const nlohmann::json& statistics);
// Ends the measuring: with its sums over all parts these can be made.
Result<bool> save_prepared(pg::Transaction& transaction, const Claim& claim, const std::vector<double>& statistics,
                           const nlohmann::json& contributions);
Result<bool> save_part(pg::Transaction& transaction, const Claim& claim, const MadePart& made);
// Gives the parts of these digests back to be averaged again: the store has lost them.
Result<bool> reopen_parts(pg::Transaction& transaction, const Claim& claim, const std::set<std::string>& digests);
Result<bool> save_version(pg::Transaction& transaction, const Claim& claim, const Published& published);
// Leaves updates out for good and begins with the others anew: what was measured was measured beside them.
Result<bool> save_refusal(pg::Transaction& transaction, const Claim& claim,
                          const std::vector<round::RefusedUpdate>& refused);
// `refused`: the updates because of which it fails, beside those that were left out before.
Result<bool> save_failure(pg::Transaction& transaction, const Claim& claim, const std::string& error,
                          const std::vector<round::RefusedUpdate>& refused);

// What the API shows. kNotFound if there is none.
Result<nlohmann::json> find_aggregation(pg::Transaction& transaction, const std::string& job, std::int64_t round);
// Up to page.limit + 1 of them; `job` empty: of all jobs.
Result<std::vector<nlohmann::json>> list_aggregations(pg::Transaction& transaction, const std::string& job,
                                                      const http::Page& page);

// Where workers LISTEN for new work.
inline constexpr char kWorkChannel[] = "atoll_aggregation_work";

}  // namespace atl::aggregation
