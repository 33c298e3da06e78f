#include "trainer/optim/optimizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "shared/safetensors/file.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::optim {
namespace {

using kernels::OnDevice;

constexpr std::size_t kCount = 101;
constexpr double kRate = 0.01;
constexpr double kTolerance = 1e-6;  // relative L2 of all weights

// What a control gets wrong.
struct Mistakes {
    bool coupled_decay = false;       // decay in the gradient, as torch.optim.Adam and SGD have it
    bool no_bias_correction = false;  // as if thousands of steps had been before
};

// What an optimizer works on; moments begin as zeros.
struct Buffers {
    OnDevice<> weights, gradients;
    std::vector<OnDevice<>> moments;

    Buffers(kernels::Backend& backend, std::int64_t count, int moment_count)
        : weights(backend, {count}), gradients(backend, {count}) {
        for (int i = 0; i < moment_count; ++i)
            moments.emplace_back(backend, std::initializer_list<std::int64_t>{count}, 0.0F);
    }
    kernels::OptimizerRange range() const {
        const auto moment = [&](std::size_t i) { return i < moments.size() ? moments[i].tensor : tensor::Tensor(); };
        return {weights.tensor, gradients.tensor, moment(0), moment(1), {}};
    }
};

// Against torch's optimizers, on every backend: tests/numerics/make_optim_goldens.py made the numbers.
class OptimizerGoldenTest : public testing::TestWithParam<std::string> {
  protected:
    // Weights after so many steps; gradients and start as the script has them.
    std::vector<float> weights_after(Optimizer optimizer, int steps, double gradient_scale = 1,
                                     const Mistakes& mistakes = {}) {
        const double coupled = mistakes.coupled_decay ? std::exchange(optimizer.weight_decay, 0) : 0;
        Buffers buffers(*backend_, kCount, optimizer.moment_count());
        std::vector<float> weights, gradients(kCount);
        for (std::size_t i = 0; i < kCount; ++i)
            weights.push_back(static_cast<float>(std::cos(static_cast<double>(i))));
        buffers.weights.write(weights);
        for (int step = 1; step <= steps; ++step) {
            if (mistakes.coupled_decay) weights = buffers.weights.read();
            for (std::size_t i = 0; i < kCount; ++i) {
                const double gradient =
                    std::sin(0.7 * static_cast<double>(i) + 0.05 * step) * std::pow(0.1, static_cast<double>(i % 3));
                gradients[i] = static_cast<float>(gradient / gradient_scale) +
                               static_cast<float>(coupled * static_cast<double>(weights[i]));
            }
            buffers.gradients.write(gradients);
            const auto scalars = kernels::scalars(
                *backend_, {.factor = gradient_scale, .updates = mistakes.no_bias_correction ? step + 10000.0 : step});
            optimizer.update(*backend_, scalars.tensor, kRate, {{buffers.range()}});
        }
        return buffers.weights.read();
    }

    // |weights − golden| / |golden|.
    double distance(const std::vector<float>& weights, const std::string& name) const {
        const safetensors::TensorInfo* const tensor = golden_.header().find(name);
        check(tensor != nullptr && tensor->dtype == safetensors::DType::kF64, "the golden lacks " + name);
        std::vector<double> wanted(kCount);
        std::memcpy(wanted.data(), golden_.bytes(*tensor).data(), kCount * sizeof(double));
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
            difference += std::pow(static_cast<double>(weights[i]) - wanted[i], 2);
            size += wanted[i] * wanted[i];
        }
        return std::sqrt(difference / size);
    }

    const std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(GetParam(), 1);
    const safetensors::File golden_ = safetensors::File::open(ATOLL_GOLDEN_DIR "/optim/golden.safetensors").value();
    const Optimizer adamw_{OptimizerKind::kAdamW, 0.9, 0.98, 1e-6, 0.1, 0};
    const Optimizer momentum_{OptimizerKind::kSgd, 0, 0, 0, 0.1, 0.9};
    const Optimizer sgd_{OptimizerKind::kSgd, 0, 0, 0, 0, 0};
};

TEST_P(OptimizerGoldenTest, AThousandStepsAreThoseOfTorchInFp64) {
    for (const int steps : {1, 10, 1000}) {
        const std::string at = "." + std::to_string(steps);
        EXPECT_LE(distance(weights_after(adamw_, steps), "adamw" + at), kTolerance) << at;
        EXPECT_LE(distance(weights_after(momentum_, steps), "sgd_momentum" + at), kTolerance) << at;
        EXPECT_LE(distance(weights_after(sgd_, steps), "sgd" + at), kTolerance) << at;
    }
}

TEST_P(OptimizerGoldenTest, GradientsAreScaledFirst) {
    EXPECT_LE(distance(weights_after(adamw_, 10, 4), "adamw.10"), kTolerance);
    EXPECT_LE(distance(weights_after(momentum_, 10, 4), "sgd_momentum.10"), kTolerance);
}

// Controls: what must not pass, to show that the tolerance can tell.

TEST_P(OptimizerGoldenTest, DecayThatGoesThroughTheMomentsIsFarOff) {
    const Mistakes coupled{.coupled_decay = true};
    EXPECT_GT(distance(weights_after(adamw_, 1000, 1, coupled), "adamw.1000"), 100 * kTolerance);
    EXPECT_GT(distance(weights_after(momentum_, 1000, 1, coupled), "sgd_momentum.1000"), 100 * kTolerance);
}

TEST_P(OptimizerGoldenTest, MomentsWhoseBiasIsNotCorrectedAreFarOff) {
    EXPECT_GT(distance(weights_after(adamw_, 1000, 1, {.no_bias_correction = true}), "adamw.1000"), 100 * kTolerance);
}

TEST_P(OptimizerGoldenTest, AnotherBetaOrMomentumIsFarOff) {
    Optimizer adamw = adamw_, momentum = momentum_;
    adamw.beta2 = 0.981;
    momentum.momentum = 0.901;
    EXPECT_GT(distance(weights_after(adamw, 1000), "adamw.1000"), 100 * kTolerance);
    EXPECT_GT(distance(weights_after(momentum, 1000), "sgd_momentum.1000"), 100 * kTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerGoldenTest, testing::ValuesIn(kernels::tested_backends()),
                         [](const auto& instance) { return instance.param; });

// The same steps in fp64: what rounding in fp32 makes of 1,000 of them.
class AdamWRoundingTest : public testing::TestWithParam<std::string> {};

TEST_P(AdamWRoundingTest, AThousandStepsAreThoseOfFp64ToAMillionth) {
    constexpr std::size_t kWeights = 3001;  // whole vectors and some over
    constexpr double kLearningRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.98, kEpsilon = 1e-8, kDecay = 0.1;
    const Optimizer adamw{OptimizerKind::kAdamW, kBeta1, kBeta2, kEpsilon, kDecay, 0};
    const auto backend = kernels::make_tested_backend(GetParam(), 1);
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    Buffers buffers(*backend, kWeights, 2);
    std::vector<float> single(kWeights), gradients(kWeights);
    std::array<std::vector<double>, 3> exact;  // weights, moments
    for (auto& buffer : exact) buffer.assign(kWeights, 0.0);
    for (std::size_t i = 0; i < kWeights; ++i) exact[0][i] = single[i] = normal(random);
    buffers.weights.write(single);
    for (int step = 1; step <= 1000; ++step) {
        for (std::size_t i = 0; i < kWeights; ++i) {
            const float gradient = gradients[i] = normal(random) * static_cast<float>(1 + i % 7);
            exact[0][i] -= kLearningRate * kDecay * exact[0][i];
            exact[1][i] = kBeta1 * exact[1][i] + (1 - kBeta1) * gradient;
            exact[2][i] = kBeta2 * exact[2][i] + (1 - kBeta2) * gradient * static_cast<double>(gradient);
            exact[0][i] -= kLearningRate * (exact[1][i] / (1 - std::pow(kBeta1, step))) /
                           (std::sqrt(exact[2][i] / (1 - std::pow(kBeta2, step))) + kEpsilon);
        }
        buffers.gradients.write(gradients);
        const auto scalars = kernels::scalars(*backend, {.updates = static_cast<double>(step)});
        adamw.update(*backend, scalars.tensor, kLearningRate, {{buffers.range()}});
    }
    single = buffers.weights.read();
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < kWeights; ++i) {
        difference += std::pow(static_cast<double>(single[i]) - exact[0][i], 2);
        size += exact[0][i] * exact[0][i];
    }
    EXPECT_LE(std::sqrt(difference / size), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, AdamWRoundingTest, testing::ValuesIn(kernels::tested_backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::optim
