#include "services/dispatch/work/history_pruner.h"

#include "shared/base/backoff.h"
#include "shared/log/log.h"
#include "shared/metrics/common.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::hours kPruneInterval{1};

}  // namespace

HistoryPruner::HistoryPruner(pg::Pool& pool, Keep keep, metrics::Registry& metrics)
    : pool_(pool), keep_(keep), metrics_(metrics) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void HistoryPruner::run(const std::stop_token& stop) {
    const auto count = [this](const std::string& table, std::int64_t rows) {
        metrics_.counter(metrics::kInbox["atoll_pruned_rows_total"], {{"table", table}})
            .Increment(static_cast<double>(rows));
    };
    do {
        const Status status = contained([&] { return prune_history(pool_, keep_, stop, count); });
        if (!status.ok()) spdlog::warn("old history cannot be pruned: {}", describe(status.error()));
    } while (wait_unless_stopped(stop, kPruneInterval));
}

}  // namespace atl::dispatch
