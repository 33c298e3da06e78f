#include "shared/http/server/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>

namespace atl::http {
namespace {

bool wakes(const Mailbox& mailbox, int timeout_ms) {
    pollfd waited{mailbox.fd(), POLLIN, 0};
    return ::poll(&waited, 1, timeout_ms) == 1;
}

TEST(MailboxTest, WorkOfManyThreadsIsDoneWhereItIsWaitedFor) {
    constexpr int kThreads = 4, kEach = 5000;
    Mailbox mailbox;
    int done = 0;  // touched by this thread alone
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < kEach; ++i) mailbox.post([&done] { ++done; });
        });
    while (done < kThreads * kEach) {
        ASSERT_TRUE(wakes(mailbox, 20000)) << done;
        mailbox.run();
    }
    threads.clear();
    mailbox.run();  // a thread may have woken us for work that was already taken
    EXPECT_FALSE(wakes(mailbox, 0));
}

TEST(MailboxTest, WorkThatIsPostedByWorkWakesAgain) {
    Mailbox mailbox;
    int done = 0;
    mailbox.post([&] { mailbox.post([&done] { ++done; }); });
    mailbox.run();
    EXPECT_EQ(done, 0);
    EXPECT_TRUE(wakes(mailbox, 0));
    mailbox.run();
    EXPECT_EQ(done, 1);
}

TEST(MailboxTest, AClosedOneHoldsNothing) {
    Mailbox mailbox;
    const auto held = std::make_shared<int>();
    mailbox.post([held] { FAIL() << "it was closed"; });
    mailbox.close();
    mailbox.post([held] { FAIL() << "it was closed"; });
    EXPECT_EQ(held.use_count(), 1);
    mailbox.run();
}

}  // namespace
}  // namespace atl::http
