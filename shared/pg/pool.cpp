#include <condition_variable>
#include <mutex>

#include "shared/base/on_exit.h"
#include "shared/pg/pg.h"

namespace atl::pg {

class Pool::Impl {
  public:
    Impl(std::string conninfo, std::string search_path, int size_max)
        : conninfo_(std::move(conninfo)), search_path_(std::move(search_path)), size_max_(size_max) {
        check(size_max > 0, "a pool needs room for a connection");
        idle_.reserve(static_cast<std::size_t>(size_max));  // give_back() must not throw
    }

    // An idle connection, or a new one while there is room; waits for one to come back otherwise.
    Result<std::unique_ptr<Connection>> take(std::chrono::milliseconds timeout) {
        ATOLL_TRY(auto connection, reserve(timeout));
        if (connection != nullptr && connection->healthy()) return connection;
        OnExit give_up([this] { release(); });
        connection.reset();
        ATOLL_TRY(Connection fresh, pg::connect(conninfo_, search_path_));
        connection = std::make_unique<Connection>(std::move(fresh));
        give_up.disarm();
        return connection;
    }

    Result<Connection> connect_beside() const { return pg::connect(conninfo_, search_path_); }

    Usage usage() {
        const std::lock_guard lock(mutex_);
        const int idle = static_cast<int>(idle_.size());
        return {open_ - idle, idle, waiters_, size_max_, waited_.count()};
    }

    void give_back(std::unique_ptr<Connection> connection) {
        if (!connection->healthy()) return release();  // broken, or left inside a transaction
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(connection));
        came_free_.notify_one();
    }

  private:
    static constexpr int kWaitersMax = 256;

    // Counts the caller in; null when it may open a new connection.
    Result<std::unique_ptr<Connection>> reserve(std::chrono::milliseconds timeout) {
        std::unique_lock lock(mutex_);
        if (waiters_ >= kWaitersMax) return unavailable("database: too many requests wait for a connection");
        ++waiters_;
        const auto begun = std::chrono::steady_clock::now();
        const bool free = came_free_.wait_for(lock, timeout, [&] { return !idle_.empty() || open_ < size_max_; });
        waited_ += std::chrono::steady_clock::now() - begun;
        --waiters_;
        if (!free)
            return unavailable("database: none of the " + std::to_string(size_max_) +
                               " connections came free in time; raise postgres_connections");
        if (idle_.empty()) {
            ++open_;
            return std::unique_ptr<Connection>();
        }
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
    }

    void release() {
        const std::lock_guard lock(mutex_);
        --open_;
        came_free_.notify_one();
    }

    const std::string conninfo_;
    const std::string search_path_;
    const int size_max_;
    std::mutex mutex_;
    std::condition_variable came_free_;
    std::vector<std::unique_ptr<Connection>> idle_;
    int open_ = 0;  // idle and lent ones
    int waiters_ = 0;
    std::chrono::duration<double> waited_{0};
};

Pool::Pool(std::string conninfo, std::string search_path, int size_max)
    : impl_(std::make_shared<Impl>(std::move(conninfo), std::move(search_path), size_max)) {}
Pool::~Pool() = default;

Result<Pool::Lease> Pool::acquire(std::chrono::milliseconds timeout) {
    ATOLL_TRY(auto connection, impl_->take(timeout));
    return Lease(impl_, std::move(connection));
}

Pool::Usage Pool::usage() const {
    return impl_->usage();
}

Result<Connection> Pool::connect() const {
    return impl_->connect_beside();
}

Pool::Lease::Lease(std::shared_ptr<Pool::Impl> pool, std::unique_ptr<Connection> connection)
    : pool_(std::move(pool)), connection_(std::move(connection)) {}
Pool::Lease::Lease(Lease&&) noexcept = default;

Pool::Lease::~Lease() {
    if (connection_ != nullptr) pool_->give_back(std::move(connection_));
}

}  // namespace atl::pg
