#include "shared/kafka/kafka.h"

#include <thread>

#include "shared/auth/certificate.h"
#include "shared/base/file.h"
#include "shared/kafka/testing/topics.h"
#include "tests/integration/test_stack.h"

namespace atl::kafka {
namespace {

using std::chrono::milliseconds;

class KafkaTest : public StackTest {
  protected:
    void SetUp() override {
        StackTest::SetUp();
        if (IsSkipped()) return;
        topic_ = stack().unique("test-kafka");
        ASSERT_TRUE(ensure_topics(stack().kafka(), {topic_}, 3).ok());
    }
    // Reads until `count` messages came (or too much time passed) and commits them all.
    std::vector<Message> read(const std::string& group, std::size_t count) {
        auto consumer = Consumer::create(stack().kafka(), group, {topic_}).value();
        std::vector<Message> all;
        EXPECT_TRUE(eventually([&] {
            for (auto& message : consumer.poll(milliseconds(200)).value()) {
                const Status committed = consumer.commit(message);
                EXPECT_TRUE(committed.ok()) << committed.error().message;
                all.push_back(std::move(message));
            }
            return all.size() >= count;
        }));
        return all;
    }
    std::string topic_;
};

TEST_F(KafkaTest, MessagesOfOneKeyKeepTheirOrderAndHeaders) {
    auto producer = Producer::create(stack().kafka(), "test").value();
    std::vector<Message> messages;
    for (int i = 0; i < 300; ++i)
        messages.push_back(
            {.topic = topic_, .key = "k" + std::to_string(i % 5), .value = std::to_string(i), .headers = {{"h", "v"}}});
    ASSERT_TRUE(producer.send(messages).ok());
    std::map<std::string, int> last;
    const auto received = read(stack().unique("group"), messages.size());
    ASSERT_EQ(received.size(), messages.size());
    for (const auto& message : received) {
        EXPECT_EQ(message.headers.at("h"), "v");
        const int number = std::stoi(message.value);
        const auto before = last.emplace(message.key, -1).first;
        EXPECT_LT(before->second, number);
        before->second = number;
    }
    EXPECT_EQ(last.size(), 5U);
}

TEST_F(KafkaTest, AGroupGoesOnAfterItsLastCommit) {
    auto producer = Producer::create(stack().kafka(), "test").value();
    const std::string group = stack().unique("group");
    ASSERT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "first"}}).ok());
    EXPECT_EQ(read(group, 1).at(0).value, "first");
    ASSERT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "second"}}).ok());
    EXPECT_EQ(read(group, 1).at(0).value, "second");
}

TEST_F(KafkaTest, WhatWasNotCommittedComesAgain) {
    auto producer = Producer::create(stack().kafka(), "test").value();
    const std::string group = stack().unique("group");
    ASSERT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "first"}}).ok());
    {
        auto consumer = Consumer::create(stack().kafka(), group, {topic_}).value();
        EXPECT_TRUE(eventually([&] { return consumer.poll(milliseconds(200)).value().size() == 1; }));
    }
    EXPECT_EQ(read(group, 1).at(0).value, "first");
}

TEST_F(KafkaTest, WhoComesBackUnderItsNameHasItsPartitionsWhileTheFormerIsStillAMember) {
    auto producer = Producer::create(stack().kafka(), "test").value();
    const std::string group = stack().unique("group");
    const auto join = [&] { return Consumer::create(stack().kafka(), group, {topic_}, "the-one").value(); };
    ASSERT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "first"}}).ok());
    Consumer former = join();
    ASSERT_TRUE(eventually([&] { return former.poll(milliseconds(200)).value().size() == 1; }));
    Consumer next = join();  // the former still sends its heartbeats
    EXPECT_TRUE(eventually([&] { return next.poll(milliseconds(200)).value().size() == 1; }));
    EXPECT_TRUE(eventually([&] { return !former.poll(milliseconds(200)).ok(); })) << "one of a name at a time";
}

TEST_F(KafkaTest, OneThatReadsIsNotTakenForDeafAndHasNoLagAtTheEnd) {
    constexpr milliseconds kSoonDeaf{300};
    auto producer = Producer::create(stack().kafka(), "test").value();
    auto consumer = Consumer::create(stack().kafka(), stack().unique("group"), {topic_}, {}, kSoonDeaf).value();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "v"}}).ok());
        ASSERT_TRUE(eventually([&] { return consumer.poll(milliseconds(50)).value().size() == 1; }));
    }
    int looks = 0;  // nothing was committed: what counts is what has been read
    EXPECT_TRUE(eventually([&] { return consumer.poll(kSoonDeaf).value().empty() && ++looks == 5; }));
    EXPECT_EQ(consumer.lag().value().messages, 0);
}

TEST_F(KafkaTest, TopicsMayExistAlready) {
    EXPECT_TRUE(ensure_topics(stack().kafka(), {topic_, stack().unique("other")}, -1).ok());
    EXPECT_FALSE(ensure_topics(stack().kafka(), {"not a topic's name"}, 1).ok());
}

TEST_F(KafkaTest, AMessageThatIsTooLargeIsRefused) {
    auto producer = Producer::create(stack().kafka(), "test").value();
    const auto status = producer.send({{.topic = topic_, .key = "k", .value = std::string(2U << 20, 'x')}});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kTooLarge);
}

TEST_F(KafkaTest, MessagesOfAProducerWhoseClockIsWrongByDaysAreTaken) {
    for (const int hours : {24, -24, 7 * 24, -365 * 24}) {
        const Status sent = send_by_wrong_clock(stack().kafka(), topic_, std::chrono::hours(hours));
        EXPECT_TRUE(sent.ok()) << hours << " h: " << sent.error().message;
    }
    EXPECT_EQ(read(stack().unique("group"), 4).size(), 4U);
}

TEST_F(KafkaTest, OnlyABrokerIsReachable) {
    Probe probe(stack().kafka());
    EXPECT_TRUE(probe.is_reachable(std::chrono::minutes(3)));
    EXPECT_TRUE(probe.is_reachable(std::chrono::minutes(3))) << "as often as one asks";
    EXPECT_FALSE(Probe("127.0.0.1:1").is_reachable(milliseconds(300)));
}

TEST_F(KafkaTest, WithoutTheCredentialsNothingIsReadListedOrWritten) {
    const auto at = stack().kafka().rfind('@');
    const std::string address = stack().kafka().substr(at + 1);
    const std::string broker_pem = read_file(stack().kafka().substr(0, at)).value();
    const TemporaryDirectory directory;
    const std::string others = directory.path() / "others.pem", trusting = directory.path() / "trusting.pem";
    const std::string others_pem = auth::make_credentials("atoll", {"127.0.0.1"}).value();
    ASSERT_TRUE(write_file_atomic(others, others_pem).ok());
    // Somebody else's key, who trusts the broker.
    ASSERT_TRUE(
        write_file_atomic(trusting, others_pem + broker_pem.substr(broker_pem.find("-----BEGIN CERTIFICATE"))).ok());
    auto producer = Producer::create(stack().kafka(), "test").value();
    ASSERT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "v"}}).ok());
    const auto try_all = [&](const std::string& cluster) {
        EXPECT_FALSE(Probe(cluster).is_reachable(milliseconds(2000))) << cluster;
        auto stranger = Producer::create(cluster, "test").value();
        EXPECT_FALSE(stranger.send({{.topic = topic_, .key = "k", .value = "w"}}, milliseconds(2000)).ok()) << cluster;
        auto reader = Consumer::create(cluster, stack().unique("group"), {topic_}).value();
        const auto read = reader.poll(milliseconds(2000));
        EXPECT_TRUE(!read.ok() || read->empty()) << cluster;
    };
    {
        std::vector<std::jthread> strangers;  // each waits for answers that do not come
        for (const std::string& cluster :
             {address, with_credentials(address, others), with_credentials(address, trusting)})
            strangers.emplace_back(try_all, cluster);
    }
    EXPECT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "v"}}).ok());
}

// Key, certificate and authority in files apart, as an operator of Kafka hands them out.
TEST_F(KafkaTest, CredentialsCanBeSettingsOfTheLibrary) {
    const auto at = stack().kafka().rfind('@');
    const std::string address = stack().kafka().substr(at + 1), pem = stack().kafka().substr(0, at);
    const TemporaryDirectory directory;
    const std::string ca = directory.path() / "ca.crt", file = directory.path() / "client.properties";
    const std::string text = read_file(pem).value();
    ASSERT_TRUE(write_file_atomic(ca, text.substr(text.find("-----BEGIN CERTIFICATE"))).ok());
    const auto cluster = with_credentials(address, file);
    const auto use = [&](const std::string& settings) {
        ASSERT_TRUE(write_file_atomic(file, "# of the test\n\n" + settings).ok());
    };
    use("security.protocol=SSL\r\nssl.key.location = " + pem + "\nssl.certificate.location=" + pem +
        "\nssl.ca.location=" + ca + "\n");
    EXPECT_EQ(certificate_file(cluster), pem);
    EXPECT_TRUE(Producer::create(cluster, "test").value().send({{.topic = topic_, .key = "k", .value = "v"}}).ok());

    // By a password: of whom the broker lets in only those with a certificate.
    use("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=atoll\nsasl.password=x=y\nssl.ca."
        "location=" +
        ca);
    EXPECT_EQ(certificate_file(cluster), "");
    ASSERT_TRUE(Producer::create(cluster, "test").ok()) << "the library knows SASL and TLS";
    EXPECT_FALSE(Probe(cluster).is_reachable(milliseconds(2000)));

    use("security.protocol=SSL\nsecret\n");
    const auto wrong = Producer::create(cluster, "test");
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().field, "kafka_credentials_file");
    EXPECT_TRUE(wrong.error().message.ends_with("line 4: must be name=value")) << wrong.error().message;
    use("sasl.pasword=x\n");
    EXPECT_EQ(Producer::create(cluster, "test").error().field, "sasl.pasword");
}

// The clients of a long-lived process: what stands in the file later is what they show.
TEST_F(KafkaTest, ARenewedCertificateIsTaken) {
    const auto at = stack().kafka().rfind('@');
    const std::string address = stack().kafka().substr(at + 1);
    const std::string right = read_file(stack().kafka().substr(0, at)).value();
    const std::string wrong = auth::make_credentials("atoll", {"127.0.0.1"}).value();
    const TemporaryDirectory directory;
    const std::string file = directory.path() / "kafka.pem";
    ASSERT_TRUE(write_file_atomic(file, wrong).ok());
    const std::string cluster = with_credentials(address, file);
    auto producer = Producer::create(cluster, "test").value();
    auto consumer = Consumer::create(cluster, stack().unique("group"), {topic_}).value();
    Probe probe(cluster);
    EXPECT_FALSE(probe.is_reachable(milliseconds(500)));
    EXPECT_TRUE(consumer.poll(milliseconds(100)).value().empty());
    ASSERT_TRUE(write_file_atomic(file, right).ok());
    EXPECT_TRUE(probe.is_reachable(std::chrono::minutes(3)));
    EXPECT_TRUE(producer.send({{.topic = topic_, .key = "k", .value = "v"}}).ok());
    EXPECT_FALSE(consumer.poll(milliseconds(100)).ok()) << "a new one is needed";
}

TEST_F(KafkaTest, SendingWithoutABrokerIsUnavailable) {
    auto producer = Producer::create("127.0.0.1:1", "test").value();
    const auto status = producer.send({{.topic = topic_, .key = "k", .value = "v"}}, milliseconds(200));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace atl::kafka
