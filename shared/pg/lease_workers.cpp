#include "shared/pg/lease_workers.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "shared/base/backoff.h"
#include "shared/base/contained.h"

namespace atl::pg {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAfterError{1000};
constexpr milliseconds kKeeperPause{1000};
constexpr milliseconds kDutyPause{1000};
constexpr milliseconds kListenWait{200};  // also how long stopping may take

}  // namespace

LeaseWorkers::LeaseWorkers(Pool& pool, Options options) : pool_(pool), options_(std::move(options)) {
    if (const Status status = contained([this] { return take_over(); }); !status.ok())
        spdlog::warn("{}: leases must run out: {}", options_.name, describe(status.error()));
    keeper_ = std::jthread([this](const std::stop_token& stop) { keep(stop); });
    if (!options_.duties.empty()) duties_ = std::jthread([this](const std::stop_token& stop) { do_duties(stop); });
    for (std::int64_t i = 0; i < options_.threads; ++i)
        threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

LeaseWorkers::~LeaseWorkers() {
    for (auto& thread : threads_) thread.request_stop();  // all at once
}

void LeaseWorkers::wake() {
    {
        const std::lock_guard lock(mutex_);
        ++wakes_;
    }
    woken_.notify_one();
}

void LeaseWorkers::work(const std::stop_token& stop) {
    const Work work_once = options_.make_work(held_);
    while (!stop.stop_requested()) {
        std::unique_lock lock(mutex_);
        const auto seen = wakes_;
        lock.unlock();
        const auto worked = contained([&] { return work_once(); });
        if (worked.ok() && *worked) continue;
        const auto is_woken = [&] { return wakes_ != seen; };
        if (!worked.ok()) {
            spdlog::warn("{}: {}", options_.name, describe(worked.error()));
            lock.lock();
            woken_.wait_for(lock, stop, kAfterError, is_woken);
            continue;
        }
        lock.lock();
        if (is_watched_) {
            woken_.wait(lock, stop, [&] { return is_woken() || !is_watched_; });
            continue;
        }
        is_watched_ = true;
        lock.unlock();
        const auto idle = contained([this] { return options_.idle_wait(); });
        lock.lock();
        woken_.wait_for(lock, stop, idle.ok() ? *idle : kAfterError, is_woken);
        is_watched_ = false;
        lock.unlock();
        woken_.notify_one();  // there may be work for this thread: another one watches
    }
}

void LeaseWorkers::keep(const std::stop_token& stop) {
    const milliseconds interval = std::min(kKeeperPause, milliseconds(options_.terms.duration) / 3);
    while (!stop.stop_requested()) {
        attempt([this] { return renew(); }, "the keeper");
        if (!options_.channel.empty() && attempt([&] { return listen(stop, interval); }, "the keeper")) continue;
        listener_.reset();
        wait_unless_stopped(stop, interval);
    }
}

void LeaseWorkers::do_duties(const std::stop_token& stop) {
    do {
        for (const auto& duty : options_.duties) attempt(duty, "a duty");
    } while (wait_unless_stopped(stop, kDutyPause));
}

bool LeaseWorkers::attempt(const std::function<Status()>& task, const char* who) {
    const Status status = contained(task);
    if (!status.ok()) spdlog::warn("{}: {}: {}", options_.name, who, describe(status.error()));
    return status.ok();
}

Status LeaseWorkers::take_over() {
    if (options_.terms.holder.empty()) return {};
    ATOLL_TRY(auto connection, pool_.acquire());
    for (const LeaseTable* table : options_.tables)
        ATOLL_RETURN_IF_ERROR(give_leases_back(*connection, *table, options_.terms.holder));
    return {};
}

Status LeaseWorkers::renew() {
    const std::vector<Lease> leases = held_.list();
    if (leases.empty()) return {};
    if (!renewer_ || !renewer_->healthy()) {
        ATOLL_TRY(renewer_, pool_.connect());
    }
    for (const Lease& lease : leases) ATOLL_RETURN_IF_ERROR(renew_lease(*renewer_, lease, options_.terms.duration));
    return {};
}

Status LeaseWorkers::listen(const std::stop_token& stop, milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    if (!listener_) {
        ATOLL_TRY(listener_, connect(options_.conninfo));
        ATOLL_RETURN_IF_ERROR(listener_->query("LISTEN " + options_.channel));
    }
    do {
        ATOLL_TRY(const auto notifications, listener_->wait_for_notifications(std::min(kListenWait, time)));
        if (notifications.empty()) continue;
        const std::lock_guard lock(mutex_);
        ++wakes_;
        woken_.notify_all();
    } while (!stop.stop_requested() && std::chrono::steady_clock::now() < end);
    return {};
}

}  // namespace atl::pg
