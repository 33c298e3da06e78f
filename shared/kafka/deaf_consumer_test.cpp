// A consumer to which nothing comes any more, though its broker has it.
#include <gtest/gtest.h>

#include "shared/kafka/kafka.h"
#include "shared/kafka/testing/fake_broker.h"
#include "tests/integration/test_stack.h"

namespace atl::kafka {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kCount = 20;
constexpr milliseconds kDeafAfter = FakeBroker::kDeafAfterMin;

// How many messages came before the consumer was found to be deaf, or all.
std::size_t read_until_deaf(Consumer& consumer) {
    std::size_t received = 0;
    EXPECT_TRUE(eventually([&] {
        const auto messages = consumer.poll(milliseconds(50));
        if (messages.ok()) received += messages->size();
        return !messages.ok() || received == kCount;
    })) << "it hears nothing and does not know";
    return received;
}

void send_all(const FakeBroker& broker) {
    auto producer = Producer::create(broker.address(), "test").value();
    std::vector<Message> sent;
    for (std::size_t i = 0; i < kCount; ++i)
        sent.push_back({.topic = "news", .key = std::to_string(i), .value = std::to_string(i)});
    ASSERT_TRUE(producer.send(sent).ok());
}

TEST(DeafConsumerTest, OneThatGetsNothingOfWhatWaitsIsFoundOutAndANewOneGetsAll) {
    FakeBroker broker("news", 3);
    send_all(broker);
    bool was_deaf = false;
    for (int attempt = 0; attempt < 10 && !was_deaf; ++attempt) {
        broker.disown_group_once();
        const std::string group = "readers-" + std::to_string(attempt);
        Consumer deaf = Consumer::create(broker.address(), group, {"news"}, {}, kDeafAfter).value();
        if (read_until_deaf(deaf) == kCount) continue;  // it joined too late
        EXPECT_EQ(deaf.lag().value().messages, static_cast<std::int64_t>(kCount));
        EXPECT_GE(deaf.lag().value().age, kDeafAfter);
        was_deaf = true;
    }
    EXPECT_TRUE(was_deaf) << "nothing was tested";
    // In a group of its own: that broker keeps a member that has left for 10 s.
    Consumer next = Consumer::create(broker.address(), "next", {"news"}).value();
    EXPECT_EQ(read_until_deaf(next), kCount);
}

TEST(DeafConsumerTest, OneWithoutPartitionsWhileMessagesWaitIsFoundOutAndANewOneGetsAll) {
    constexpr milliseconds kSoon{500};
    FakeBroker broker("news", 3);
    send_all(broker);
    broker.refuse_members();
    {
        Consumer outside = Consumer::create(broker.address(), "readers", {"news"}, {}, kSoon).value();
        EXPECT_EQ(read_until_deaf(outside), 0U);
        EXPECT_EQ(outside.lag().value().messages, static_cast<std::int64_t>(kCount));
        EXPECT_GE(outside.lag().value().age, 2 * kSoon) << "joining takes its time";
    }
    broker.accept_members();
    Consumer next = Consumer::create(broker.address(), "readers", {"news"}, {}, kDeafAfter).value();
    EXPECT_EQ(read_until_deaf(next), kCount);
}

TEST(DeafConsumerTest, OneWithoutPartitionsIsNotDeafWhereNothingWaits) {
    constexpr milliseconds kSoon{100};
    FakeBroker broker("news", 3);
    broker.refuse_members();
    Consumer outside = Consumer::create(broker.address(), "readers", {"news"}, {}, kSoon).value();
    // So often that a message would have waited for too long.
    EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(outside.poll(kSoon).ok());
        return outside.lag().has_value();
    }));
    for (int look = 0; look < 5; ++look) EXPECT_TRUE(outside.poll(2 * kSoon).ok());
    EXPECT_EQ(outside.lag().value().messages, 0);
}

}  // namespace
}  // namespace atl::kafka
