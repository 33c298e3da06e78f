#include "services/dispatch/work/step_transport.h"

#include <gtest/gtest.h>

#include <thread>

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;

// Takes so long for each script.
class SlowTransport : public Transport {
  public:
    explicit SlowTransport(milliseconds time) : time_(time) {}
    Result<CommandResult> run(const RemoteScript& script) override {
        timeouts.push_back(script.timeout);
        std::this_thread::sleep_for(std::min(time_, script.timeout));
        return CommandResult();
    }
    std::vector<milliseconds> timeouts;

  private:
    milliseconds time_;
};

TEST(StepTransportTest, TheScriptsOfAStepShareItsTime) {
    const auto slow = std::make_shared<SlowTransport>(milliseconds(1200));
    StepTransport step(slow, milliseconds(3000));
    RemoteScript script;
    int answers = 0;
    Result<CommandResult> last = CommandResult();
    while ((last = step.run(script)).ok()) ++answers;
    EXPECT_GE(answers, 1);
    EXPECT_LE(answers, 3);
    for (const milliseconds timeout : slow->timeouts) EXPECT_LE(timeout, milliseconds(3000));
    EXPECT_TRUE(std::is_sorted(slow->timeouts.rbegin(), slow->timeouts.rend()));
    EXPECT_FALSE(is_silence(last.error())) << "it has answered";
    EXPECT_LT(StepTransport::kStepTimeMax, std::chrono::minutes(1));
}

}  // namespace
}  // namespace atl::dispatch
