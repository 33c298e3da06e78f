#include "trainer/parallel/device_scalars.h"

#include <gtest/gtest.h>

#include "trainer/comm/comm.h"
#include "trainer/kernels/testing/far_backend.h"

namespace atl::parallel {
namespace {

// Remembers what the host asks for; from some event on its streams do nothing any more.
class Device final : public kernels::FarBackend {
  public:
    explicit Device(std::uint64_t last) : FarBackend(kernels::make_cpu_backend(1).value()), last_(last) {}
    bool has_happened(kernels::Event event) override {
        if (event.number > last_) return false;
        const bool is_over = FarBackend::has_happened(event);
        if (is_over) seen.push_back(event.number);
        return is_over;
    }
    std::vector<std::uint64_t> seen;

  private:
    std::uint64_t last_;
};

// A run's scalars alone.
struct Scalars {
    explicit Scalars(kernels::Backend& backend)
        : memory(backend.allocate(kBytes).value()), host(backend.allocate(kernels::Space::kPinned, kBytes).value()) {
        Arena device = Arena::borrowing(memory.data(), kBytes), pinned = Arena::borrowing(host.data(), kBytes);
        scalars = DeviceScalars::lay_out(device, pinned);
    }
    static constexpr std::int64_t kBytes = 4096;
    tensor::Memory memory, host;
    DeviceScalars scalars;
};

constexpr const char* kStep = "step 7";

void wait_as_rank(kernels::Backend& device, comm::Comm& rank) {
    device.wait_by([&](const std::function<bool()>& is_done, kernels::Event, std::string_view of) {
        rank.wait_until(is_done, {of, "its device", "computing"});
    });
}

TEST(DeviceScalarsTest, AStepThatTheDeviceNeverFinishesEndsTheRunAndIsNamed) {
    Device device(1);
    Scalars run(device);
    run.scalars.set(device, {.updates = 6});
    run.scalars.send(device);
    const auto self = comm::make_self();
    self->limit_waits(0.01);
    wait_as_rank(device, *self);
    EXPECT_EXIT(run.scalars.receive(device, kStep), testing::ExitedWithCode(1),
                "rank 0 has waited [0-9]+ s for step 7 of its device \\(computing\\); the device stands still. "
                "More than --collective-timeout");
}

// So the limit is for one of them, and not for all that a step does.
TEST(DeviceScalarsTest, TheHostWaitsForOneEventAfterAnother) {
    Device device(1000);
    Scalars run(device);
    run.scalars.set(device, {.updates = 6});
    const std::uint64_t before = device.record(kernels::Stream::kIn).number;
    for (int i = 0; i < 3; ++i) device.record(kernels::Stream::kCompute);
    run.scalars.send(device);
    const auto self = comm::make_self();
    wait_as_rank(device, *self);
    EXPECT_EQ(run.scalars.receive(device, kStep).updates, 6);
    const std::uint64_t last = device.record(kernels::Stream::kIn).number - 1;
    ASSERT_EQ(device.seen.size(), last);
    for (std::uint64_t number = 1; number <= last; ++number) EXPECT_EQ(device.seen[number - 1], number);
    EXPECT_GT(last, before + 3);
    run.scalars.send(device);
    device.seen.clear();
    run.scalars.receive(device, kStep);
    EXPECT_EQ(device.seen.front(), last + 1) << "what has happened is not asked for again";
}

}  // namespace
}  // namespace atl::parallel
