// A broker that stands still again and again, as on a machine whose disk or memory is busy with something else.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "shared/base/file.h"
#include "shared/base/id.h"
#include "shared/base/subprocess.h"
#include "shared/events/events.h"
#include "shared/pg/pg.h"

namespace atl::contract {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr char kPausesSchema[] = "pauses";
constexpr char kPausesTopic[] = "pauses";
constexpr seconds kStandstill{11};      // more than the 10 s after which a group takes a silent member for dead
constexpr seconds kFlowsAgainIn{60};    // after the broker's return
constexpr int kEventsAStandstill = 10;  // on several partitions

// PostgreSQL and Kafka, until the object dies.
class PausedBroker {
  public:
    PausedBroker() {
        if (::geteuid() == 0) std::filesystem::permissions(directory_.path(), std::filesystem::perms(0711));
        CommandOptions options;
        options.timeout = std::chrono::minutes(3);
        const auto up = run_command(
            {ATOLL_PROGRAM, "up", "--only", "postgres,kafka", "--port-base", "0", "--state", state_.string()}, options);
        check(up.ok() && up->exit_code == 0, "the stack does not start");
        description_ = json::parse(read_file(state_ / "stack.json").value()).value();
        std::ifstream(state_ / "run/kafka.pid") >> pid_;
    }
    ~PausedBroker() {
        ::kill(pid_, SIGCONT);
        (void)run_command({ATOLL_PROGRAM, "down", "--state", state_.string()});
    }
    PausedBroker(const PausedBroker&) = delete;
    PausedBroker& operator=(const PausedBroker&) = delete;

    std::string postgres() const { return description_.at("postgres"); }
    std::string kafka() const {
        return kafka::with_credentials(description_.at("kafka"), description_.at("kafka_credentials"));
    }
    void signal(int number) const { check(::kill(pid_, number) == 0, "the broker is gone"); }

  private:
    TemporaryDirectory directory_{"atoll-pauses"};
    std::filesystem::path state_ = directory_.path() / "stack";
    json::Json description_;
    pid_t pid_ = 0;
};

// A long test of its own (broker_pauses_test): a quarter of a minute each, of which there are ATOLL_PAUSES.
TEST(BrokerPauseTest, DISABLED_EventsFlowAfterEachPauseOfTheBroker) {
    const char* given = std::getenv("ATOLL_PAUSES");
    const int pauses = given != nullptr ? std::atoi(given) : 50;
    const PausedBroker broker;
    {
        auto connection = pg::connect(broker.postgres()).value();
        const std::string tables(events::kTablesSql);
        const std::array<pg::Migration, 1> migrations{{{1, tables}}};
        ASSERT_TRUE(pg::migrate(connection, kPausesSchema, migrations).ok());
    }
    pg::Pool pool(broker.postgres(), kPausesSchema, 8);
    metrics::Registry metrics;
    std::atomic<int> arrived = 0;
    const events::Relay relay(pool, broker.postgres(), kPausesSchema, broker.kafka(), metrics);
    events::InboxConsumer consumer(pool, broker.kafka(), "pauses", {kPausesTopic},
                                   [&](pg::Transaction&, const events::Event&) -> Status {
                                       ++arrived;
                                       return {};
                                   },
                                   metrics, {.instance = "the-one"});
    const auto add = [&] {
        auto lease = pool.acquire().value();
        auto transaction = pg::Transaction::begin(*lease).value();
        for (int i = 0; i < kEventsAStandstill; ++i) {
            events::Event event;
            event.type = "atoll.test.v1";
            event.source = "/test";
            event.data = json::Json::object();
            ASSERT_TRUE(events::add_to_outbox(transaction, kPausesTopic, std::to_string(i), std::move(event)).ok());
        }
        ASSERT_TRUE(transaction.commit().ok());
    };
    // Seconds until all that was added has arrived.
    const auto wait_for_all = [&](int count) {
        const auto began = Clock::now();
        while (arrived < count && Clock::now() < began + 4 * kFlowsAgainIn)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return std::chrono::duration<double>(Clock::now() - began).count();
    };
    add();
    wait_for_all(kEventsAStandstill);
    double longest_s = 0;
    for (int pause = 1; pause <= pauses; ++pause) {
        broker.signal(SIGSTOP);
        std::this_thread::sleep_for(kStandstill);  // the pause itself
        add();
        broker.signal(SIGCONT);
        const double took_s = wait_for_all((pause + 1) * kEventsAStandstill);
        longest_s = std::max(longest_s, took_s);
        std::printf("pause %d: all events %.1f s after the broker's return (longest so far %.1f s)\n", pause, took_s,
                    longest_s);
        std::fflush(stdout);
        EXPECT_LE(took_s, static_cast<double>(kFlowsAgainIn.count())) << "pause " << pause;
        ASSERT_GE(arrived, (pause + 1) * kEventsAStandstill);
    }
}

}  // namespace
}  // namespace atl::contract
