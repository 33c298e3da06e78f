#include "shared/service/readiness.h"

#include "shared/base/backoff.h"
#include "shared/metrics/common.h"

namespace atl::service {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kInterval{1};
constexpr std::chrono::seconds kAgeMax{15};  // more than a database and a broker that do not answer are waited for

Status database_ready(pg::Pool& pool) {
    ATOLL_TRY(pg::Pool::Lease connection, pool.acquire(std::chrono::seconds(2)));
    ATOLL_RETURN_IF_ERROR(connection->query("SELECT 1"));
    return {};
}

}  // namespace

Readiness::Readiness(pg::Pool& pool, Running& running, metrics::Registry& metrics)
    : pool_(pool),
      running_(running),
      postgres_(metrics.gauge(metrics::kCommon["atoll_ready"], {{"dependency", "postgres"}})),
      kafka_(metrics.gauge(metrics::kCommon["atoll_ready"], {{"dependency", "kafka"}})),
      status_(unavailable("it is just starting")),
      found_out_(steady_clock::now()) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Status Readiness::get() const {
    const std::lock_guard lock(mutex_);
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - found_out_);
    if (!status_.ok() || age < kAgeMax) return status_;
    return unavailable("its database or its broker has not answered for " + std::to_string(age.count()) + " s");
}

Status Readiness::look() {
    const Status database = contained([this] { return database_ready(pool_); });
    const Status events = contained([this] { return running_.events(); });
    const Status own = contained([this] { return running_.ready(); });
    postgres_.Set(database.ok() ? 1 : 0);
    kafka_.Set(events.ok() ? 1 : 0);
    ATOLL_RETURN_IF_ERROR(database);
    if (running_.needs_events()) ATOLL_RETURN_IF_ERROR(events);
    return own;
}

void Readiness::run(const std::stop_token& stop) {
    do {
        Status status = look();
        const std::lock_guard lock(mutex_);
        status_ = std::move(status);
        found_out_ = steady_clock::now();
    } while (wait_unless_stopped(stop, kInterval));
}

}  // namespace atl::service
