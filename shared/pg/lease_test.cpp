#include "shared/pg/lease.h"

#include <atomic>
#include <latch>

#include "shared/pg/lease_workers.h"
#include "shared/pg/testing/database_fixture.h"

namespace atl::pg {
namespace {

using std::chrono::seconds;

const LeaseTable kWork{
    .name = "work", .key = {"kind", "number"}, .joins = "", .due = "NOT t.done", .order = "t.number"};

class LeaseTest : public DatabaseTest {
  protected:
    void SetUp() override {
        DatabaseTest::SetUp();
        if (IsSkipped()) return;
        query(
            "CREATE TABLE work (kind text, number integer, done boolean NOT NULL DEFAULT false, "
            "lease_until timestamptz NOT NULL DEFAULT '-infinity', lease_holder text NOT NULL DEFAULT '', "
            "fence bigint NOT NULL DEFAULT 0, PRIMARY KEY (kind, number))");
    }
    std::optional<LeasedRow> take(const std::string& holder = {}) {
        return take_lease(*connection_, kWork, {seconds(60), holder}).value();
    }
    // A pool of one thread that does what is due.
    LeaseWorkers::Options options() {
        return {.name = "test",
                .terms = {seconds(60), "me"},
                .tables = {&kWork},
                .make_work =
                    [this](HeldLeases& held) {
                        return [this, &held]() -> Result<bool> {
                            if (fail_next_.exchange(false)) throw std::runtime_error("a fault");
                            ATOLL_TRY(auto connection, pool_->acquire());
                            ATOLL_TRY(auto leased, take_lease(*connection, kWork, {seconds(60), "me"}));
                            if (!leased) return false;
                            const HeldLeases::Hold holding(held, leased->lease);
                            ATOLL_RETURN_IF_ERROR(connection->query(
                                std::string("UPDATE work SET done = true, ") + kGiveLeaseBack + " WHERE fence = $1",
                                {leased->lease.fence}));
                            return true;
                        };
                    },
                .idle_wait = []() -> Result<std::chrono::milliseconds> {
                    return std::chrono::milliseconds(std::chrono::hours(1));
                }};
    }
    bool all_done() {
        return eventually([&] { return query("SELECT 1 FROM work WHERE NOT done").empty(); });
    }

    std::optional<Pool> pool_;
    std::atomic<bool> fail_next_ = false;
};

TEST_F(LeaseTest, EachRowIsTakenOnceInOrderWithAHigherFence) {
    query("INSERT INTO work VALUES ('a', 2), ('a', 1), ('b', 3)");
    query("UPDATE work SET done = true WHERE number = 3");
    const auto first = take();
    const auto second = take();
    EXPECT_EQ(first->lease.key, (std::vector<std::string>{"a", "1"}));
    EXPECT_EQ(first->lease.fence, 1);
    EXPECT_EQ(second->lease.key, (std::vector<std::string>{"a", "2"}));
    EXPECT_FALSE(take());
}

TEST_F(LeaseTest, ALeaseThatRanOutIsNotRenewedAndGoesToAnother) {
    query("INSERT INTO work VALUES ('a', 1)");
    const auto slow = take();
    EXPECT_TRUE(renew_lease(*connection_, slow->lease, seconds(60)).value());
    query("UPDATE work SET lease_until = now() - interval '1 s'");
    EXPECT_FALSE(renew_lease(*connection_, slow->lease, seconds(60)).value());
    const auto fast = take();
    ASSERT_TRUE(fast);
    EXPECT_FALSE(renew_lease(*connection_, slow->lease, seconds(60)).value());
    ASSERT_TRUE(give_lease_back(*connection_, slow->lease).ok());
    EXPECT_TRUE(renew_lease(*connection_, fast->lease, seconds(60)).value()) << "it is another's to give back";
}

TEST_F(LeaseTest, WhatIsGivenBackWaitsForItsPauseAndCannotBeRenewed) {
    query("INSERT INTO work VALUES ('a', 1)");
    const auto leased = take();
    ASSERT_TRUE(give_lease_back(*connection_, leased->lease, seconds(60)).ok());
    EXPECT_FALSE(renew_lease(*connection_, leased->lease, seconds(60)).value());
    EXPECT_FALSE(take());
    query("UPDATE work SET lease_until = now()");
    EXPECT_TRUE(take());
}

TEST_F(LeaseTest, ALeaseFromBeforeTheClockWasSetBackHasRunOut) {
    query("INSERT INTO work VALUES ('a', 1)");
    ASSERT_TRUE(take());
    query("UPDATE work SET lease_until = lease_until + interval '1 day'");
    EXPECT_TRUE(take());
}

TEST_F(LeaseTest, AProcessThatComesBackFreesItsOwnLeasesAlone) {
    query("INSERT INTO work VALUES ('a', 1), ('a', 2), ('a', 3)");
    take("me");
    take("another");
    take();
    ASSERT_TRUE(give_leases_back(*connection_, kWork, "").ok());
    EXPECT_FALSE(take());
    ASSERT_TRUE(give_leases_back(*connection_, kWork, "me").ok());
    EXPECT_EQ(take()->lease.key.at(1), "1");
    EXPECT_FALSE(take());
}

TEST_F(LeaseTest, WorkersTakeUpWhatTheirProcessHeldAndWakeForMore) {
    query("INSERT INTO work VALUES ('a', 1)");
    take("me");
    pool_.emplace(conninfo_, "", 4);
    LeaseWorkers workers(*pool_, options());
    EXPECT_TRUE(all_done());
    query("INSERT INTO work VALUES ('a', 2)");
    workers.wake();
    EXPECT_TRUE(all_done());
}

TEST_F(LeaseTest, ANotificationWakesWorkersAndADutyThatFailsKeepsNoOtherFromBeingDone) {
    pool_.emplace(conninfo_, "", 4);
    std::atomic<int> done = 0;
    auto given = options();
    given.duties = {[]() -> Status { throw std::runtime_error("a fault"); },
                    [&]() -> Status {
                        ++done;
                        return {};
                    }};
    given.channel = "more_work";
    given.conninfo = conninfo_;
    const LeaseWorkers workers(*pool_, given);
    ASSERT_TRUE(eventually(
        [&] { return query("SELECT 1 FROM pg_stat_activity WHERE query = 'LISTEN more_work'").size() == 1; }));
    query("INSERT INTO work VALUES ('a', 1)");
    query("NOTIFY more_work");
    EXPECT_TRUE(all_done());
    EXPECT_TRUE(eventually([&] { return done >= 2; }));
}

TEST_F(LeaseTest, ALeaseIsRenewedThoughADutyHangsThePoolIsEmptyAndAnotherRowIsLocked) {
    query("INSERT INTO work VALUES ('a', 1), ('a', 2)");
    pool_.emplace(conninfo_, "", 2);
    std::latch over(1);
    auto given = options();
    given.threads = 2;
    given.terms.duration = seconds(30);
    given.make_work = [&](HeldLeases& held) {
        return [&]() -> Result<bool> {
            std::optional<LeasedRow> leased;
            {
                ATOLL_TRY(auto connection, pool_->acquire());
                ATOLL_TRY(leased, take_lease(*connection, kWork, {seconds(30), "me"}));
            }
            if (!leased) return false;
            const HeldLeases::Hold holding(held, leased->lease);
            over.wait();
            return true;
        };
    };
    std::atomic<bool> hangs = false;
    given.duties = {[&]() -> Status {
        hangs = true;
        over.wait();
        return {};
    }};
    const LeaseWorkers workers(*pool_, given);
    ASSERT_TRUE(eventually([&] { return hangs && query("SELECT 1 FROM work WHERE lease_holder = 'me'").size() == 2; }));
    {
        const auto first = pool_->acquire().value();
        const auto second = pool_->acquire().value();
        auto locker = connect(conninfo_).value();
        auto lock = Transaction::begin(locker).value();
        ASSERT_TRUE(lock.query("UPDATE work SET kind = kind WHERE number = 1").ok());
        const auto end_of = [&] {
            return query("SELECT lease_until FROM work WHERE number = 2").text(0, "lease_until");
        };
        const std::string before = end_of();
        EXPECT_TRUE(eventually([&] { return end_of() != before; }));
    }
    over.count_down();
}

TEST_F(LeaseTest, OfIdleThreadsOneWatches) {
    pool_.emplace(conninfo_, "", 4);
    std::atomic<int> looks = 0, waits = 0;
    auto given = options();
    given.threads = 4;
    given.make_work = [&](HeldLeases&) {
        return [&]() -> Result<bool> {
            ++looks;
            return false;
        };
    };
    given.idle_wait = [&]() -> Result<std::chrono::milliseconds> {
        ++waits;
        return std::chrono::milliseconds(std::chrono::hours(1));
    };
    {
        const LeaseWorkers workers(*pool_, given);
        EXPECT_TRUE(eventually([&] { return looks >= 4 && waits >= 1; }));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        EXPECT_EQ(looks, 4);
        EXPECT_EQ(waits, 1);  // when they are told to end, another one may take over
    }
}

TEST_F(LeaseTest, WhileOneThreadWorksAnotherWatches) {
    pool_.emplace(conninfo_, "", 4);
    std::atomic<int> looks = 0;
    std::latch over(1);
    auto given = options();
    given.threads = 3;
    given.make_work = [&](HeldLeases&) {
        return [&]() -> Result<bool> {
            const int look = ++looks;
            if (look == 10 || look == 20) over.wait();  // two have work that lasts
            return false;
        };
    };
    given.idle_wait = []() -> Result<std::chrono::milliseconds> { return std::chrono::milliseconds(1); };
    const LeaseWorkers workers(*pool_, given);
    EXPECT_TRUE(eventually([&] { return looks >= 30; })) << looks;
    over.count_down();
}

TEST_F(LeaseTest, WhatAWorkerThrowsEndsItsAttemptAndNotTheProcess) {
    query("INSERT INTO work VALUES ('a', 1)");
    fail_next_ = true;
    pool_.emplace(conninfo_, "", 4);
    const LeaseWorkers workers(*pool_, options());
    EXPECT_TRUE(all_done());
}

}  // namespace
}  // namespace atl::pg
