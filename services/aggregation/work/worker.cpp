#include "services/aggregation/work/worker.h"

#include <malloc.h>
#include <spdlog/spdlog.h>

#include <numeric>

#include "services/aggregation/events/events.h"
#include "services/aggregation/metrics.h"
#include "services/aggregation/work/read_ahead.h"
#include "shared/base/backoff.h"
#include "shared/base/contained.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::aggregation {
namespace {

constexpr std::chrono::milliseconds kRetryPause{2000};
constexpr std::chrono::milliseconds kRetryPauseMax{30000};  // all attempts that count take three minutes
constexpr std::chrono::milliseconds kIdleWait{1000};        // leases that ran out notify nobody
constexpr std::int64_t kAttemptsMax = 10;
// A process dies of what others do, too: after each death but the first the work waits for longer, three hours in all.
constexpr std::int64_t kDeathsMax = 20;
constexpr std::chrono::milliseconds kDeathPause{2000};
constexpr std::chrono::milliseconds kDeathPauseMax{15 * 60 * 1000};
constexpr std::size_t kMessageBytesMax = 500;  // a tensor's name, for one, is as long as its facility likes

// Runs `work` in a transaction and commits. False (a stale claim) commits nothing.
template <class Work>
Result<bool> in_transaction(pg::Pool& pool, const Work& work) {
    ATOLL_TRY(auto lease, pool.acquire());
    ATOLL_TRY(auto transaction, pg::Transaction::begin(*lease));
    ATOLL_TRY(const bool current, work(transaction));
    if (!current) return false;
    ATOLL_RETURN_IF_ERROR(transaction.commit());
    return true;
}

}  // namespace

Worker::Worker(pg::Pool& pool, Settings settings, std::string instance, pg::HeldLeases& held,
               metrics::Registry& metrics)
    : pool_(pool),
      settings_(std::move(settings)),
      terms_{std::chrono::seconds(settings_.lease_s), std::move(instance)},
      held_(held),
      parts_(metrics.counter(kMetrics["atoll_aggregation_parts_total"])),
      bytes_(metrics.counter(kMetrics["atoll_aggregation_written_bytes_total"])),
      stale_(metrics.counter(kMetrics["atoll_aggregation_leases_lost_total"])),
      failures_(metrics.counter(kMetrics["atoll_aggregation_failures_total"])) {}

Result<bool> Worker::work_once() {
    std::optional<Claim> claim;
    {
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(claim, claim_work(*lease, terms_));
    }
    if (!claim) {
        close();
        return false;
    }
    const pg::HeldLeases::Hold holding(held_, claim->lease);
    if (claim->is_after_death && claim->deaths > 1 && claim->deaths < kDeathsMax) {
        ATOLL_RETURN_IF_ERROR(wait_after_death(*claim));
        return true;
    }
    at_fault_.reset();
    const Status status = contained([&] { return perform(*claim); });
    if (!status.ok()) ATOLL_RETURN_IF_ERROR(handle_failure(*claim, status.error()));
    return true;
}

Status Worker::wait_after_death(const Claim& claim) {
    const auto pause =
        std::chrono::duration_cast<std::chrono::seconds>(backoff_delay(claim.deaths - 1, kDeathPause, kDeathPauseMax));
    spdlog::warn("aggregation {}: a process ended while it worked on it, {} times now; it waits for {} s",
                 claim.aggregation, claim.deaths, pause.count());
    ATOLL_TRY(auto lease, pool_.acquire());
    return release(*lease, claim, pause, /*counts=*/false);
}

Status Worker::perform(const Claim& claim) {
    if (claim.deaths >= kDeathsMax)
        return Error{ErrorCode::kConflict,
                     "given up: the process that worked on it ended " + std::to_string(claim.deaths) +
                         " times, one after the other (the log of aggregation or the kernel's says why, as too little "
                         "memory)",
                     {}};
    ATOLL_RETURN_IF_ERROR(open(claim));
    switch (claim.step) {
        case Step::kPlan:
            return plan(claim);
        case Step::kMeasure:
            return measure_part(claim);
        case Step::kPrepare:
            return prepare(claim);
        case Step::kPart:
            return make_part(claim);
        case Step::kPublish:
            return publish(claim);
    }
    return {};
}

// What was read ahead, and what a product holds of adapters, goes back to the system, as the C library would keep it.
void Worker::close() {
    opened_.reset();
    prepared_.reset();
    if (!models_) return;
    models_.reset();
    ::malloc_trim(0);
}

Status Worker::open(const Claim& claim) {
    const std::pair wanted{claim.aggregation, claim.plan};
    if (opened_ == wanted) return {};
    close();
    {
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(round_, load_round(*lease, claim.aggregation));
    }
    const auto on_fault = [this](std::optional<std::size_t> update, bool is_stores) {
        at_fault_.reset();
        if (update) at_fault_ = Fault{*update, is_stores};
    };
    ATOLL_TRY(auto models, RemoteModels::open(settings_, round_, on_fault));
    models_.emplace(std::move(models));
    opened_ = wanted;
    return {};
}

Status Worker::plan(const Claim& claim) {
    const auto parts =
        round::cut_into_parts(models_->aggregator().files(), static_cast<std::uint64_t>(settings_.part_bytes));
    nlohmann::json shares;
    if (!models_->is_measured()) {
        ATOLL_TRY(prepared_, models_->prepare(round_));
        shares = contributions(round_, *prepared_);
    }
    ATOLL_TRY(const bool current, in_transaction(pool_, [&](pg::Transaction& transaction) {
                  return save_plan(transaction, claim, parts, shares);
              }));
    if (!current) stale_.Increment();
    return {};
}

Status Worker::measure_part(const Claim& claim) {
    ATOLL_TRY(const auto statistics, models_->measure_part(claim.part));
    ATOLL_TRY(const bool current, in_transaction(pool_, [&](pg::Transaction& transaction) {
                  return save_measured(transaction, claim, round::to_json(statistics));
              }));
    if (!current) stale_.Increment();
    return {};
}

Status Worker::prepare(const Claim& claim) {
    if (round_.statistics.empty()) {
        std::vector<nlohmann::json> parts;
        {
            ATOLL_TRY(auto lease, pool_.acquire());
            ATOLL_TRY(parts, load_statistics(*lease, claim.aggregation));
        }
        std::vector<aggregate::ExactSum> sums(models_->aggregator().statistics_count());
        for (const auto& part : parts) ATOLL_RETURN_IF_ERROR(round::add_statistics(sums, part));
        for (const auto& sum : sums) round_.statistics.push_back(sum.value());
    }
    ATOLL_TRY(prepared_, models_->prepare(round_));
    ATOLL_TRY(const bool current, in_transaction(pool_, [&](pg::Transaction& transaction) {
                  return save_prepared(transaction, claim, round_.statistics, contributions(round_, *prepared_));
              }));
    if (!current) stale_.Increment();
    return {};
}

// What another worker may have decided since the models were opened.
Status Worker::use_shares(const Claim& claim) {
    if (prepared_) return {};
    if (models_->is_measured() && round_.statistics.empty()) {
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(round_, load_round(*lease, claim.aggregation));
        if (round_.statistics.empty() || opened_->second != static_cast<std::int64_t>(round_.refused.size()))
            return unavailable("the updates have not been measured");
    }
    ATOLL_TRY(prepared_, models_->prepare(round_));
    return {};
}

Status Worker::make_part(const Claim& claim) {
    ATOLL_RETURN_IF_ERROR(use_shares(claim));
    ATOLL_TRY(const MadePart made, models_->make_part(claim.part));
    ATOLL_TRY(const bool current,
              in_transaction(pool_, [&](pg::Transaction& transaction) { return save_part(transaction, claim, made); }));
    if (!current) {
        stale_.Increment();
        return {};
    }
    parts_.Increment();
    bytes_.Increment(static_cast<double>(claim.part.size));
    return {};
}

Status Worker::publish(const Claim& claim) {
    std::vector<round::Part> parts;
    nlohmann::json metrics = nlohmann::json::object();
    {
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(parts, load_parts(*lease, claim.aggregation));
        if (models_->aggregator().truncates()) {
            ATOLL_TRY(const auto lost, load_statistics(*lease, claim.aggregation));
            ATOLL_TRY(metrics["product_relative_error"], round::relative_error(lost));
        }
    }
    for (const round::Part& part : parts)  // none are left when another worker has published
        if (part.sha256.empty()) return unavailable("a part is missing");
    if (parts.empty()) return unavailable("the parts are gone");
    ATOLL_RETURN_IF_ERROR(use_shares(claim));
    if (!round_.absent.empty())
        metrics["absent_share"] = 1 - std::accumulate(prepared_->shares.begin(), prepared_->shares.end(), 0.0);
    ATOLL_TRY(const auto missing, models_->missing(parts));
    if (!missing.empty()) return make_again(claim, missing);
    ATOLL_TRY(const Published published, models_->publish(round_, parts, contributions(round_, *prepared_), metrics));
    ATOLL_TRY(
        const bool current, in_transaction(pool_, [&](pg::Transaction& transaction) -> Result<bool> {
            ATOLL_TRY(const bool saved, save_version(transaction, claim, published));
            if (saved)
                ATOLL_RETURN_IF_ERROR(add_completed(transaction, settings_.topic_prefix, round_, published.version));
            return saved;
        }));
    if (!current) stale_.Increment();
    if (current) spdlog::info("round {} of job {} is version {}", round_.round, round_.job, published.version);
    return {};
}

// The store keeps what no version needs for a day only, and an aggregation may wait for longer.
Status Worker::make_again(const Claim& claim, const std::set<std::string>& missing) {
    ATOLL_TRY(const bool current, in_transaction(pool_, [&](pg::Transaction& transaction) {
                  return reopen_parts(transaction, claim, missing);
              }));
    if (!current) stale_.Increment();
    spdlog::warn("aggregation {}: {} parts are no longer in the store and are made again", claim.aggregation,
                 missing.size());
    return {};
}

// Fails the aggregation for good, or gives the work back to be tried again.
Status Worker::handle_failure(const Claim& claim, Error error) {
    error.message = shorten(json::printable(describe(error)), kMessageBytesMax);
    failures_.Increment();
    // A fault of ours is tried again so often, as it may be one worker's; the store's own trouble for ever.
    const bool counts = error.code == ErrorCode::kInternal;
    if (!is_final(error.code) && !(counts && claim.attempts >= kAttemptsMax)) {
        spdlog::warn("aggregation {}: will try again: {}", claim.aggregation, error.message);
        opened_.reset();
        ATOLL_TRY(auto lease, pool_.acquire());
        const auto pause = counts ? backoff_delay(claim.attempts, kRetryPause, kRetryPauseMax) : kRetryPause;
        return release(*lease, claim, std::chrono::duration_cast<std::chrono::seconds>(pause), counts);
    }
    ATOLL_TRY(const bool current, in_transaction(pool_, [&](pg::Transaction& transaction) {
                  if (!at_fault_) return fail(transaction, claim, error.message, {});
                  const bool is_sites = !at_fault_->is_stores && error.code == ErrorCode::kInvalidArgument;
                  return refuse(transaction, claim, {round_.updates[at_fault_->update], error.message, is_sites});
              }));
    if (current) spdlog::error("aggregation {}: {}", claim.aggregation, error.message);
    return {};
}

Result<bool> Worker::refuse(pg::Transaction& transaction, const Claim& claim, const round::RefusedUpdate& refused) {
    const std::size_t left = round_.updates.size() - 1;
    if (left >= round_.quorum) return save_refusal(transaction, claim, {refused});
    return fail(transaction, claim,
                refused.reason + "; " + std::to_string(left) + " of the " + std::to_string(round_.quorum) +
                    " updates that the round needs are left",
                {refused});
}

Result<bool> Worker::fail(pg::Transaction& transaction, const Claim& claim, const std::string& error,
                          const std::vector<round::RefusedUpdate>& refused) {
    ATOLL_TRY(const bool saved, save_failure(transaction, claim, error, refused));
    if (!saved) return false;
    ATOLL_TRY(const round::ClosedRound round, load_round(transaction.connection(), claim.aggregation));
    ATOLL_RETURN_IF_ERROR(
        add_failed(transaction, settings_.topic_prefix, round.job, round.round, error, round.refused));
    return true;
}

pg::LeaseWorkers::Options worker_options(pg::Pool& pool, const std::string& conninfo, const Settings& settings,
                                         metrics::Registry& metrics, const std::string& instance) {
    return {.name = "aggregation workers",
            .threads = settings.workers,
            .terms = {std::chrono::seconds(settings.lease_s), instance},
            .tables = lease_tables(),
            .make_work =
                [&pool, settings, instance, &metrics](pg::HeldLeases& held) {
                    auto worker = std::make_shared<Worker>(pool, settings, instance, held, metrics);
                    return [worker] { return worker->work_once(); };
                },
            .idle_wait = []() -> Result<std::chrono::milliseconds> { return kIdleWait; },
            .channel = kWorkChannel,
            .conninfo = conninfo};
}

}  // namespace atl::aggregation
