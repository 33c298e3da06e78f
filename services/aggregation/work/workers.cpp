#include "services/aggregation/work/workers.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "services/aggregation/db/repository.h"
#include "shared/base/contained.h"

namespace atl::aggregation {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kIdleWait{1000};  // leases that ran out notify nobody
constexpr milliseconds kListenWait{200};
constexpr milliseconds kErrorPause{1000};

Status take_over(pg::Pool& pool, const std::string& instance) {
    if (instance.empty()) return {};
    ATOLL_TRY(auto connection, pool.acquire());
    return release_leases_of(*connection, instance + "#");
}

}  // namespace

Workers::Workers(pg::Pool& pool, std::string conninfo, const Settings& settings, metrics::Registry& metrics,
                 const std::string& instance)
    : pool_(pool), conninfo_(std::move(conninfo)), settings_(settings), held_(instance + "#"), metrics_(metrics) {
    if (const Status status = take_over(pool_, instance); !status.ok())
        spdlog::warn("aggregation workers: leases must run out: {}", describe(status.error()));
    renewer_ = std::jthread([this](const std::stop_token& stop) { wake_and_renew(stop); });
    for (std::int64_t i = 0; i < settings_.workers; ++i)
        threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

Workers::~Workers() {
    for (auto& thread : threads_) thread.request_stop();  // all finish at once what they have in hand
}

void Workers::wake_and_renew(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        const Status status = contained([&] { return listen_once(stop); });
        if (status.ok()) continue;
        spdlog::warn("aggregation workers: {}", describe(status.error()));
        std::unique_lock lock(mutex_);
        std::condition_variable_any().wait_for(lock, stop, kErrorPause, [] { return false; });
    }
}

// Until the connection breaks or we are asked to stop.
Status Workers::listen_once(const std::stop_token& stop) {
    using Clock = std::chrono::steady_clock;
    ATOLL_TRY(auto connection, pg::connect(conninfo_, "aggregation"));
    ATOLL_RETURN_IF_ERROR(connection.query(std::string("LISTEN ") + kWorkChannel));
    const auto interval = milliseconds(settings_.lease_s * 1000 / 3);
    auto next_renewal = Clock::now();
    while (!stop.stop_requested()) {
        ATOLL_TRY(const bool notified, connection.wait_for_notification(std::min(kListenWait, interval)));
        if (notified) {
            const std::lock_guard lock(mutex_);
            ++wake_count_;
            woken_.notify_all();
        }
        if (Clock::now() < next_renewal) continue;
        for (const std::string& name : held_.names())
            ATOLL_RETURN_IF_ERROR(renew_leases(connection, name, settings_.lease_s));
        next_renewal = Clock::now() + interval;
    }
    return {};
}

void Workers::work(const std::stop_token& stop) {
    Worker worker(pool_, settings_, held_, metrics_);
    while (!stop.stop_requested()) {
        std::unique_lock lock(mutex_);
        const auto seen = wake_count_;
        lock.unlock();
        const auto done = contained([&] { return worker.work_once(); });
        if (!done.ok()) spdlog::warn("aggregation worker: {}", describe(done.error()));
        if (done.ok() && *done) continue;
        lock.lock();
        woken_.wait_for(lock, stop, done.ok() ? kIdleWait : kErrorPause, [&] { return wake_count_ != seen; });
    }
}

}  // namespace atl::aggregation
