// What FarBackend lets no test get away with.

#include "trainer/kernels/testing/far_backend.h"

#include <gtest/gtest.h>

namespace atl::kernels {
namespace {

class FarBackendTest : public ::testing::Test {
  protected:
    FarBackend backend_{make_cpu_backend(1).value()};
    tensor::Memory memory_ = backend_.allocate(Space::kDevice, 64).value();
    Tensor there_{memory_.data(), tensor::DType::kF32, {16}};
    std::array<float, 16> here_{};
};

TEST_F(FarBackendTest, AnOperationOnTheHostsMemoryEndsTheProgramWithTheReason) {
    const Tensor own(here_.data(), tensor::DType::kF32, {16});
    const auto add_and_wait = [&] {
        backend_.add(own, there_, there_);
        backend_.synchronize();
    };
    EXPECT_DEATH(add_and_wait(), "memory that is neither the device's nor pinned");
}

TEST_F(FarBackendTest, TheHostDoesNotReachDeviceMemory) {
    EXPECT_DEATH(static_cast<volatile float*>(there_.f32())[0] = 1.0F, "");
}

TEST_F(FarBackendTest, OperationsReachPinnedMemory) {
    const tensor::Memory pinned = backend_.allocate(Space::kPinned, 64).value();
    const Tensor values(pinned.data(), tensor::DType::kF32, {16});
    std::fill_n(values.f32(), 16, 3.0F);
    backend_.scale(values, 2.0F);
    backend_.synchronize();
    EXPECT_EQ(values.f32()[15], 6.0F);
}

TEST_F(FarBackendTest, EveryCopyFromOrToTheHostIsAWaitOfTheHost) {
    backend_.copy_from_host(here_.data(), there_);
    EXPECT_EQ(backend_.host_waits(), 1);
    backend_.copy_to_host(there_, here_.data());
    EXPECT_EQ(backend_.host_waits(), 2);
}

TEST_F(FarBackendTest, AskingOnceWaitsForNothingAndAskingAgainIsOneWait) {
    backend_.zero(there_);
    const Event zeroed = backend_.record(Stream::kCompute), empty = backend_.record(Stream::kOut);
    EXPECT_FALSE(backend_.has_happened(zeroed));
    EXPECT_EQ(backend_.host_waits(), 0);
    EXPECT_TRUE(backend_.has_happened(zeroed));
    EXPECT_TRUE(backend_.has_happened(empty));
    EXPECT_EQ(backend_.host_waits(), 1);
    EXPECT_FALSE(backend_.has_happened(backend_.record(Stream::kCompute)));
    EXPECT_EQ(backend_.host_waits(), 1);
}

}  // namespace
}  // namespace atl::kernels
