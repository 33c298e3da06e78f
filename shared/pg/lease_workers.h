#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shared/pg/lease.h"

namespace atl::pg {

// The threads of this process that do leased work, one more, the keeper, that renews their leases meanwhile on a
// connection of its own, so that it waits for nobody, and one for the other duties. Of threads without work one watches
// for more, so that waiting costs the same however many there are. An error of any of them is logged, and it goes on
// after a pause.
class LeaseWorkers {
  public:
    // Takes a lease, has it held and does the work. False: there is none.
    using Work = std::function<Result<bool>()>;
    struct Options {
        std::string name;  // for the log
        std::int64_t threads = 1;
        LeaseTerms terms;
        std::vector<const LeaseTable*> tables;
        std::function<Work(HeldLeases&)> make_work;  // called in each thread
        // How long the one that watches waits until it looks again, unless it is woken.
        std::function<Result<std::chrono::milliseconds>()> idle_wait;
        std::vector<std::function<Status()>> duties = {};  // what else is done, one after the other, about every second
        // Where NOTIFY tells of new work, and the conninfo to listen there; empty: only wake() tells.
        std::string channel = {};
        std::string conninfo = {};
    };
    // What an earlier process of this holder had in hand is free at once.
    LeaseWorkers(Pool& pool, Options options);
    // Lets each thread finish its piece of work; leases are renewed until all have.
    ~LeaseWorkers();

    void wake();  // one thread

  private:
    void work(const std::stop_token& stop);
    void keep(const std::stop_token& stop);
    void do_duties(const std::stop_token& stop);
    bool attempt(const std::function<Status()>& task, const char* who);  // false: it failed, which is logged
    Status take_over();
    Status renew();
    Status listen(const std::stop_token& stop, std::chrono::milliseconds time);

    Pool& pool_;
    const Options options_;
    HeldLeases held_;
    std::mutex mutex_;
    std::condition_variable_any woken_;
    std::uint64_t wakes_ = 0;
    bool is_watched_ = false;
    std::optional<Connection> renewer_;  // the keeper's, as is the next
    std::optional<Connection> listener_;
    std::jthread keeper_;
    std::jthread duties_;
    std::vector<std::jthread> threads_;  // last: stopped first
};

}  // namespace atl::pg
