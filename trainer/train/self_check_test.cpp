#include "trainer/train/self_check.h"

#include <gtest/gtest.h>

#include <set>

#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::train {
namespace {

namespace cpu = kernels::cpu;

struct Checked {
    Status status;
    std::size_t count = 0;
    std::set<std::string> failed;  // by name
};

Checked check(const cpu::SimdKernels& simd, const cpu::Sgemm& sgemm) {
    cpu::CpuBackend backend(simd, sgemm, 1);
    Checked checked;
    checked.status = check_backend(backend, [&](const CheckResult& result) {
        ++checked.count;
        if (!result.ok()) checked.failed.insert(result.name);
    });
    return checked;
}

TEST(SelfCheckTest, ABackendThatComputesRightPasses) {
    const Checked checked = check(cpu::baseline::simd_kernels(), cpu::openblas());
    EXPECT_TRUE(checked.status.ok());
    EXPECT_GT(checked.count, 12U);
    EXPECT_TRUE(checked.failed.empty()) << *checked.failed.begin();
}

TEST(SelfCheckTest, AProductWithOneWrongNumberIsFound) {
    cpu::Sgemm wrong = cpu::openblas();
    wrong.multiply = [](std::int64_t m, std::int64_t n, std::int64_t k, const cpu::GemmOperand& a,
                        const cpu::GemmOperand& b, float* c, std::int64_t c_stride, bool accumulate) {
        cpu::openblas().multiply(m, n, k, a, b, c, c_stride, accumulate);
        c[0] += 0.125F;
    };
    const Checked checked = check(cpu::baseline::simd_kernels(), wrong);
    ASSERT_FALSE(checked.status.ok());
    EXPECT_EQ(checked.status.error().code, ErrorCode::kInternal) << "the program's exit code is 1";
    EXPECT_TRUE(checked.failed.contains("matmul 1x3x3"));
    EXPECT_TRUE(checked.failed.contains("matmul 301x290x523, first transposed, second transposed, added"));
}

TEST(SelfCheckTest, AGradientThatLacksAHundredthIsFound) {
    cpu::SimdKernels wrong = cpu::baseline::simd_kernels();
    wrong.swiglu_backward = [](const float* gate_up, const float* out_gradient, float* gate_up_gradient, float* out,
                               std::int64_t channels) {
        cpu::baseline::simd_kernels().swiglu_backward(gate_up, out_gradient, gate_up_gradient, out, channels);
        for (std::int64_t i = 0; i < 2 * channels; ++i) gate_up_gradient[i] *= 0.99F;
    };
    const Checked checked = check(wrong, cpu::openblas());
    ASSERT_FALSE(checked.status.ok());
    EXPECT_EQ(checked.failed,
              (std::set<std::string>{"gradient of embedding", "gradient of layers.0", "gradient of layers.1"}))
        << "all but the head's, which comes first";
}

}  // namespace
}  // namespace atl::train
