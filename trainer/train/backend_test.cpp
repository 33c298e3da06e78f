#include "trainer/train/backend.h"

#include <gtest/gtest.h>

#include "trainer/kernels/testing/far_backend.h"

namespace atl::train {
namespace {

using kernels::Tensor;

// A device that does nothing, at once, and counts what it was asked for between two waits of the host.
class IdleDevice final : public kernels::FarBackend {
  public:
    IdleDevice() : FarBackend(kernels::make_cpu_backend(1, "baseline").value()) {}
    Result<tensor::Memory> allocate(kernels::Space space, std::int64_t bytes) override {
        if (bytes > memory_bytes) return Error{ErrorCode::kResourceExhausted, "no room", {}};
        return FarBackend::allocate(space, bytes);
    }
    bool host_reaches_device() const override { return is_host; }
    void copy(const Tensor&, const Tensor&) override {}
    void matmul(const Tensor& a, bool, const Tensor& b, bool, const Tensor& c, bool) override {
        ++asked_;
        for (const Tensor* x : {&a, &b, &c}) formats.push_back(x->dtype());
        side_max = std::max(side_max, c.rows());
    }
    void synchronize() override { at_once_max = std::max(at_once_max, std::exchange(asked_, 0)); }

    std::int64_t memory_bytes = std::int64_t{1} << 40, side_max = 0;
    int at_once_max = 0;
    bool is_host = false;
    std::vector<tensor::DType> formats;

  private:
    int asked_ = 0;
};

TEST(PeakFlopsTest, ADeviceIsAskedForSeveralProductsBeforeTheHostWaits) {
    IdleDevice device;
    EXPECT_GT(measure_peak_flops(device, tensor::DType::kBF16), 0);
    EXPECT_GE(device.at_once_max, 10);
    EXPECT_GT(device.side_max, 512);
    for (const tensor::DType format : device.formats) EXPECT_EQ(format, tensor::DType::kBF16);
}

TEST(PeakFlopsTest, ADevicesProductsAreAsLargeAsItsMemoryLetsThemBe) {
    IdleDevice device;
    device.memory_bytes = 3 * 2048 * 2048 * 4;
    EXPECT_GT(measure_peak_flops(device, tensor::DType::kF32), 0);
    EXPECT_LE(device.side_max, 2048);
    device.memory_bytes = 1000;
    EXPECT_EQ(measure_peak_flops(device, tensor::DType::kF32), 0);
}

TEST(PeakFlopsTest, ACpuIsAskedForOneSmallProductAtATime) {
    IdleDevice device;
    device.is_host = true;
    EXPECT_GT(measure_peak_flops(device, tensor::DType::kF32), 0);
    EXPECT_EQ(device.at_once_max, 1);
    EXPECT_EQ(device.side_max, 512);
}

}  // namespace
}  // namespace atl::train
