// What the host learns of a device's streams, on every backend.

#include <gtest/gtest.h>

#include <array>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {
namespace {

class StreamTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr Stream kStreams[] = {Stream::kCompute, Stream::kIn, Stream::kOut};

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
};

TEST_P(StreamTest, AnEventThatIsAskedForAgainAndAgainHappens) {
    const OnDevice<> x = random(*backend_, {30, 7}, 1);
    backend_->scale(x.tensor, 2.0F);
    const Event scaled = backend_->record(Stream::kCompute);
    backend_->wait(Stream::kOut, scaled);
    const Event after = backend_->record(Stream::kOut);
    while (!backend_->has_happened(after)) {
    }
    EXPECT_TRUE(backend_->has_happened(scaled));
    EXPECT_TRUE(backend_->has_happened({}));
}

TEST_P(StreamTest, TimedEventsAreInTheOrderOfTheirStreamAndOfWhatItWaitsFor) {
    const OnDevice<> x = random(*backend_, {30, 7}, 1);
    std::vector<std::shared_ptr<const TimedEvent>> events;
    for (int round = 0; round < 3; ++round) {
        for (const Stream stream : kStreams) {
            events.push_back(backend_->record_timed(stream));
            if (stream == Stream::kCompute) backend_->scale(x.tensor, 2.0F);
            events.push_back(backend_->record_timed(stream));
            const Event done = backend_->record(stream);
            for (const Stream other : kStreams) backend_->wait(other, done);
        }
    }
    backend_->synchronize();
    for (std::size_t i = 1; i < events.size(); ++i) {
        ASSERT_TRUE(events[i]->has_happened());
        EXPECT_GE(events[i]->seconds_since(*events[i - 1]), 0) << i;
        EXPECT_EQ(events[i]->seconds_since(*events[i]), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(All, StreamTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::kernels
