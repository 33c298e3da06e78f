#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "shared/kafka/kafka.h"
#include "tests/integration/tcp_gate.h"

namespace atl::dispatch {
namespace {

class LateBrokerTest : public DispatchTest {};

TEST_F(LateBrokerTest, DispatchServesBeforeItsBrokerIsThereAndIsReadyWithIt) {
    TcpGate broker(stack().kafka());
    std::atomic<bool> was_answered = false;
    // Whoever waits for a broker to make a topic waits for a quarter of a minute.
    std::jthread waiter([&] {
        (void)kafka::ensure_topics(broker.address(), {prefix_ + "late"}, 1);
        was_answered = true;
    });
    ASSERT_NO_FATAL_FAILURE(begin({}, broker.address()));
    const std::string job = submit(job_request(1));
    EXPECT_FALSE(was_answered) << "the service waited for the broker";
    EXPECT_EQ(ready().error().code, ErrorCode::kUnavailable);
    broker.open();
    EXPECT_TRUE(eventually([&] { return ready().ok(); }));
    EXPECT_TRUE(reaches(job, "completed")) << "its events arrive, and the answers to them";
}

}  // namespace
}  // namespace atl::dispatch
