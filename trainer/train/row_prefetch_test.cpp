#include "trainer/train/row_prefetch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "shared/base/file.h"
#include "shared/safetensors/file.h"
#include "trainer/train/stop.h"

namespace atl::train {
namespace {

constexpr std::int64_t kRows = 10, kColumns = 3, kMicro = 4;

// A file of kRows rows, read in a shuffled order.
class RowPrefetchTest : public testing::Test {
  protected:
    void SetUp() override {
        std::vector<std::int32_t> ids(kRows * kColumns);
        std::iota(ids.begin(), ids.end(), 0);
        auto writer =
            safetensors::Writer::create(path_, {{"input_ids", safetensors::DType::kI32, {kRows, kColumns}, 0, 0}});
        ASSERT_TRUE(writer.ok());
        ASSERT_TRUE(writer->append(std::as_bytes(std::span(ids))).ok());
        ASSERT_TRUE(writer->finish().ok());
        dataset_ = std::make_unique<dataset::Dataset>(dataset::Dataset::open(path_).value());
    }
    Status read(const RowRange& range, dataset::Batch& batch) const {
        return dataset_->read(order_, range.begin, range.count, batch);
    }
    static RowRange range(std::int64_t step) { return {step * kMicro, kMicro}; }
    // A step that takes as long as reading the next rows.
    static void compute(const RowPrefetch& prefetch) {
        while (!prefetch.is_ready()) std::this_thread::yield();  // for good: the test's time limit
    }

    TemporaryDirectory directory_;
    std::filesystem::path path_ = directory_.path() / "data.safetensors";
    std::unique_ptr<dataset::Dataset> dataset_;
    dataset::RowOrder order_{kRows, /*shuffle=*/true, /*seed=*/7};
};

TEST_F(RowPrefetchTest, NoRowIsWaitedForWhenReadingTakesLessThanAStepAndTheRowsAreThoseOfTheFile) {
    RowPrefetch prefetch([&](const RowRange& range, dataset::Batch& batch) { return read(range, batch); });
    prefetch.start(range(0));
    for (std::int64_t step = 0; step < 7; ++step) {  // over two epochs
        compute(prefetch);
        const auto rows = prefetch.take(range(step));
        ASSERT_TRUE(rows.ok());
        dataset::Batch direct;
        ASSERT_TRUE(read(range(step), direct).ok());
        EXPECT_EQ((*rows)->input_ids, direct.input_ids) << step;
        EXPECT_EQ((*rows)->labels, direct.labels) << step;
        EXPECT_EQ((*rows)->rows, kMicro);
        prefetch.start(range(step + 1));
    }
    EXPECT_EQ(prefetch.waits(), 0);
}

TEST_F(RowPrefetchTest, RowsOfASlowFileAreWaitedForAndAreTheSame) {
    RowPrefetch* waiting = nullptr;
    std::int64_t reads = 0;
    RowPrefetch prefetch([&](const RowRange& range, dataset::Batch& batch) {
        while (waiting->waits() <= reads) std::this_thread::yield();  // until the step waits
        ++reads;
        return read(range, batch);
    });
    waiting = &prefetch;
    for (std::int64_t step = 0; step < 3; ++step) {
        prefetch.start(range(step));
        const auto rows = prefetch.take(range(step));
        ASSERT_TRUE(rows.ok());
        dataset::Batch direct;
        ASSERT_TRUE(read(range(step), direct).ok());
        EXPECT_EQ((*rows)->input_ids, direct.input_ids) << step;
    }
    EXPECT_EQ(prefetch.waits(), 3);
}

TEST_F(RowPrefetchTest, AnErrorComesWithTheRowsThatCouldNotBeRead) {
    RowPrefetch prefetch([&](const RowRange& range, dataset::Batch& batch) { return read(range, batch); });
    prefetch.start(range(0));
    compute(prefetch);
    std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - kRows * kColumns * sizeof(std::int32_t));
    EXPECT_TRUE(prefetch.take(range(0)).ok());
    prefetch.start(range(1));
    compute(prefetch);
    const auto rows = prefetch.take(range(1));
    ASSERT_FALSE(rows.ok());
    dataset::Batch direct;
    EXPECT_EQ(rows.error().message, read(range(1), direct).error().message);
}

TEST_F(RowPrefetchTest, AnEndWithoutTakingIsAfterTheReadUnderWay) {
    std::atomic<bool> is_reading = false;
    std::int64_t reads = 0;
    {
        RowPrefetch prefetch([&](const RowRange& range, dataset::Batch& batch) {
            is_reading = true;
            const Status status = read(range, batch);
            ++reads;
            return status;
        });
        prefetch.start(range(0));
        while (!is_reading) std::this_thread::yield();
    }
    EXPECT_EQ(reads, 1);
}

TEST_F(RowPrefetchTest, AnEmptyRangeIsNotRead) {
    RowPrefetch prefetch([](const RowRange&, dataset::Batch&) { return Status(internal_error("read")); });
    prefetch.start({kRows, 0});
    prefetch.start({kRows, 0});
    EXPECT_FALSE(prefetch.is_ready());
}

TEST_F(RowPrefetchTest, TheThreadThatReadsTakesNoSignalThatStopsARun) {
    const StopRequest stop;
    std::set<int> taken;
    RowPrefetch prefetch([&](const RowRange&, dataset::Batch&) {
        sigset_t blocked;
        pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        for (const int signal : {SIGTERM, SIGINT, SIGUSR1})
            if (sigismember(&blocked, signal) == 0) taken.insert(signal);
        return Status();
    });
    prefetch.start(range(0));
    EXPECT_TRUE(prefetch.take(range(0)).ok());
    EXPECT_EQ(taken, std::set<int>());
}

}  // namespace
}  // namespace atl::train
