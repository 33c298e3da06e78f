#include "trainer/optim/optimizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace atl::optim {
namespace {

constexpr std::size_t kCount = 6;
constexpr double kRate = 0.01;

// Weights after so many steps; gradients and start as tests/numerics/make_optim_goldens.py has them.
std::vector<float> weights_after(const Optimizer& optimizer, int steps, double gradient_scale = 1) {
    const auto backend = kernels::make_cpu_backend(1);
    check(backend.ok(), "no backend");
    std::array<std::vector<float>, 4> buffers;
    for (auto& buffer : buffers) buffer.assign(kCount, 0.0F);
    const auto tensor_of = [&](std::size_t which) {
        return tensor::Tensor(buffers[which].data(), tensor::DType::kF32, {static_cast<std::int64_t>(kCount)});
    };
    for (std::size_t i = 0; i < kCount; ++i) buffers[0][i] = static_cast<float>(std::cos(static_cast<double>(i)));
    for (int step = 1; step <= steps; ++step) {
        for (std::size_t i = 0; i < kCount; ++i) {
            const double gradient =
                std::sin(0.7 * static_cast<double>(i) + 0.05 * step) * std::pow(0.1, static_cast<double>(i % 3));
            buffers[1][i] = static_cast<float>(gradient / gradient_scale);
        }
        optimizer.update(**backend, step, kRate, gradient_scale, true,
                         {tensor_of(0),
                          tensor_of(1),
                          optimizer.moment_count() > 0 ? tensor_of(2) : tensor::Tensor(),
                          optimizer.moment_count() > 1 ? tensor_of(3) : tensor::Tensor(),
                          {}});
    }
    return buffers[0];
}

void expect_weights(const std::vector<float>& weights, const std::array<double, kCount>& golden, double tolerance) {
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(weights[i], golden[i], tolerance) << "weight " << i;
}

TEST(OptimizerTest, AdamWIsTorchs) {
    const Optimizer adamw{Kind::kAdamW, 0.9, 0.98, 1e-6, 0.1, 0};
    expect_weights(weights_after(adamw, 1),
                   {0.9890002, 0.529762121, -0.425729691, -0.999002495, -0.662989617, 0.29337602}, 2e-7);
    expect_weights(weights_after(adamw, 10),
                   {0.89305797, 0.434617939, -0.511465029, -1.07809715, -0.720964934, 0.381431224}, 1e-6);
    expect_weights(weights_after(adamw, 1000),
                   {0.414871173, 0.361960375, -0.00769263477, -0.313702141, -0.274617459, -0.0173539292}, 4e-6);
}

// The same steps in fp64: what rounding in fp32 makes of 1,000 of them.
class AdamWRoundingTest : public testing::TestWithParam<std::string> {};

TEST_P(AdamWRoundingTest, AThousandStepsAreThoseOfFp64ToAMillionth) {
    constexpr std::size_t kWeights = 3001;  // whole vectors and some over
    constexpr double kLearningRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.98, kEpsilon = 1e-8, kDecay = 0.1;
    const Optimizer adamw{Kind::kAdamW, kBeta1, kBeta2, kEpsilon, kDecay, 0};
    const auto backend = kernels::make_cpu_backend(1, GetParam()).value();
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::array<std::vector<float>, 4> single;  // weights, gradients, moments
    std::array<std::vector<double>, 3> exact;  // weights, moments
    for (auto& buffer : single) buffer.assign(kWeights, 0.0F);
    for (auto& buffer : exact) buffer.assign(kWeights, 0.0);
    for (std::size_t i = 0; i < kWeights; ++i) exact[0][i] = single[0][i] = normal(random);
    const auto tensor_of = [&](std::size_t which) {
        return tensor::Tensor(single[which].data(), tensor::DType::kF32, {static_cast<std::int64_t>(kWeights)});
    };
    for (int step = 1; step <= 1000; ++step) {
        for (std::size_t i = 0; i < kWeights; ++i) {
            const float gradient = single[1][i] = normal(random) * static_cast<float>(1 + i % 7);
            exact[0][i] -= kLearningRate * kDecay * exact[0][i];
            exact[1][i] = kBeta1 * exact[1][i] + (1 - kBeta1) * gradient;
            exact[2][i] = kBeta2 * exact[2][i] + (1 - kBeta2) * gradient * static_cast<double>(gradient);
            exact[0][i] -= kLearningRate * (exact[1][i] / (1 - std::pow(kBeta1, step))) /
                           (std::sqrt(exact[2][i] / (1 - std::pow(kBeta2, step))) + kEpsilon);
        }
        adamw.update(*backend, step, kLearningRate, 1, true,
                     {tensor_of(0), tensor_of(1), tensor_of(2), tensor_of(3), {}});
    }
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < kWeights; ++i) {
        difference += std::pow(static_cast<double>(single[0][i]) - exact[0][i], 2);
        size += exact[0][i] * exact[0][i];
    }
    EXPECT_LE(std::sqrt(difference / size), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, AdamWRoundingTest, testing::ValuesIn(kernels::cpu_instruction_sets()),
                         [](const auto& instance) { return instance.param; });

TEST(OptimizerTest, SgdIsTorchsWithDecoupledDecay) {
    const Optimizer momentum{Kind::kSgd, 0, 0, 0, 0.1, 0.9};
    expect_weights(weights_after(momentum, 10),
                   {0.902909903, 0.502504393, -0.416091804, -1.28124276, -0.652318677, 0.283056658}, 1e-6);
    expect_weights(weights_after(momentum, 1000),
                   {1.0771541, 0.324537614, -0.140855597, 0.23732428, -0.26995266, 0.0937583602}, 1e-5);
    const Optimizer plain{Kind::kSgd, 0, 0, 0, 0, 0};
    expect_weights(weights_after(plain, 1000),
                   {0.99430654, 0.543257928, -0.415637789, -0.941679519, -0.651343806, 0.283530867}, 4e-6);
}

TEST(OptimizerTest, GradientsAreScaledFirst) {
    const Optimizer momentum{Kind::kSgd, 0, 0, 0, 0.1, 0.9};
    const auto scaled = weights_after(momentum, 10, 4);
    expect_weights(scaled, {0.902909903, 0.502504393, -0.416091804, -1.28124276, -0.652318677, 0.283056658}, 1e-6);
}

}  // namespace
}  // namespace atl::optim
