#include "trainer/train/stop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "shared/base/file.h"

namespace atl::train {
namespace {

TEST(StopTest, TheTimeThatIsNeededMustFitIntoWhatIsLeft) {
    const StopRequest stop;
    EXPECT_EQ(stop.wanted(10000, 1), StopCause::kNone);
    EXPECT_EQ(stop.wanted(10000, 10001), StopCause::kTimeLimit);
    EXPECT_EQ(stop.wanted(0, 10001), StopCause::kNone) << "no limit";
}

TEST(StopTest, AStepNeedsTheValidationAfterItAndSavingToo) {
    const LastTimes took = {.step_s = 1, .validation_s = 20, .save_s = 300};
    EXPECT_EQ(took.needed_for_step(false), 301);
    EXPECT_EQ(took.needed_for_step(true), 321);
    EXPECT_EQ(took.needed_for_batch(4), 304);
}

TEST(StopTest, ASignalIsRemembered) {
    const StopRequest stop;
    EXPECT_EQ(stop.told(), StopCause::kNone);
    kill(getpid(), SIGTERM);
    while (stop.told() == StopCause::kNone) std::this_thread::yield();  // for good: the test's time limit
    EXPECT_EQ(stop.wanted(0, 0), StopCause::kSigterm);
}

TEST(StopTest, AFileThatComesIsASignal) {
    const TemporaryDirectory work;
    const std::filesystem::path file = work.path() / "stop";
    StopRequest stop;
    stop.watch(file);
    EXPECT_EQ(stop.wanted(0, 0), StopCause::kNone);
    ASSERT_TRUE(write_file_atomic(file, "").ok());
    while (stop.told() == StopCause::kNone) std::this_thread::yield();  // for good: the test's time limit
    EXPECT_EQ(stop.wanted(0, 0), StopCause::kFile);
}

// Whether a thread of this process takes the signal itself.
bool takes(int signal) {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return sigismember(&blocked, signal) == 0;
}

TEST(StopTest, NoThreadThatComputesTakesTheSignals) {
    {
        const StopRequest stop;
        for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
            bool by_worker = true;
            std::jthread([&] { by_worker = takes(signal); }).join();
            EXPECT_FALSE(takes(signal) || by_worker) << signal;
        }
        EXPECT_TRUE(takes(SIGSEGV));
    }
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) kill(getpid(), signal);
    EXPECT_TRUE(takes(SIGTERM)) << "but nothing comes of them";
}

}  // namespace
}  // namespace atl::train
