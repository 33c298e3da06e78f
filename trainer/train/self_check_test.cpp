#include "trainer/train/self_check.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>

#include "trainer/parallel/testing/deferred_backend.h"

namespace atl::train {
namespace {

using kernels::Tensor;
using parallel::DeferredBackend;

std::unique_ptr<kernels::Backend> make_device() {
    return kernels::make_cpu_backend(1, "baseline").value();
}

// Products have one wrong number.
class WrongProducts final : public DeferredBackend {
  public:
    WrongProducts() : DeferredBackend(make_device()) {}
    void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                bool accumulate) override {
        DeferredBackend::matmul(a, transpose_a, b, transpose_b, c, accumulate);
        synchronize();
        c.f32()[0] += 0.125F;
    }
};

// Gradients of SwiGLU lack a hundredth.
class WrongSwiglu final : public DeferredBackend {
  public:
    WrongSwiglu() : DeferredBackend(make_device()) {}
    void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                         const Tensor& out) override {
        DeferredBackend::swiglu_backward(gate_up, out_gradient, gate_up_gradient, out);
        scale(gate_up_gradient, 0.99F);
    }
};

struct Checked {
    Status status;
    std::size_t count = 0;
    std::set<std::string> failed;  // by name
};

Checked check(kernels::Backend& backend) {
    Checked checked;
    checked.status = check_backend(backend, [&](const CheckResult& result) {
        ++checked.count;
        if (!result.ok()) checked.failed.insert(result.name);
    });
    return checked;
}

TEST(SelfCheckTest, ABackendThatComputesRightPasses) {
    const Checked checked = check(*make_device());
    EXPECT_TRUE(checked.status.ok());
    EXPECT_GT(checked.count, 12U);
    EXPECT_TRUE(checked.failed.empty()) << *checked.failed.begin();
}

TEST(SelfCheckTest, AProductWithOneWrongNumberIsFound) {
    WrongProducts backend;
    const Checked checked = check(backend);
    ASSERT_FALSE(checked.status.ok());
    EXPECT_EQ(checked.status.error().code, ErrorCode::kInternal) << "the program's exit code is 1";
    EXPECT_TRUE(checked.failed.contains("matmul 1x3x3"));
    EXPECT_TRUE(checked.failed.contains("matmul 301x290x523, first transposed, second transposed, added"));
}

TEST(SelfCheckTest, AGradientThatLacksAHundredthIsFound) {
    WrongSwiglu backend;
    const Checked checked = check(backend);
    ASSERT_FALSE(checked.status.ok());
    EXPECT_EQ(checked.failed,
              (std::set<std::string>{"gradient of embedding", "gradient of layers.0", "gradient of layers.1"}))
        << "all but the head's, which comes first";
}

}  // namespace
}  // namespace atl::train
