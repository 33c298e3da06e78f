#include "trainer/optim/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shared/safetensors/file.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::optim {
namespace {

using kernels::OnDevice;

struct MatrixShape {
    std::int64_t rows, columns;
    std::string name() const { return std::to_string(rows) + "x" + std::to_string(columns); }
};
constexpr MatrixShape kMatrices[] = {{12, 40}, {40, 12}, {24, 24}, {1, 16}};

// Against torch.optim.Muon, on every backend: tests/numerics/make_optim_goldens.py made the numbers.
class MuonGoldenTest : public testing::TestWithParam<std::string> {
  protected:
    static constexpr double kLearningRate = 0.01, kWeightDecay = 0.1, kMuonMomentum = 0.95;
    // Relative L2 of all weights; products in fp32 take about 1e-6.
    static constexpr double kFarthest = 1e-5;

    // Weights after so many steps; gradients and start as the script has them.
    std::vector<float> weights_after(const MatrixShape& shape, int steps, double momentum = kMuonMomentum,
                                     double gradient_scale = 1) {
        const std::int64_t count = shape.rows * shape.columns;
        OnDevice<> weights(*backend_, {count}), gradients(*backend_, {count}), momenta(*backend_, {count}, 0.0F),
            direction(*backend_, {count});
        std::vector<float> values(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(std::cos(static_cast<double>(i)));
        weights.write(values);
        for (int step = 1; step <= steps; ++step) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                const double at = static_cast<double>(i);
                const double gradient = std::sin(0.013 * at * at + 0.05 * step);
                values[i] = static_cast<float>(static_cast<double>(static_cast<float>(gradient)) / gradient_scale);
            }
            gradients.write(values);
            const auto scalars =
                kernels::scalars(*backend_, {.factor = gradient_scale, .updates = static_cast<double>(step)});
            const kernels::OptimizerRange of_momentum{direction.tensor, gradients.tensor, momenta.tensor, {}, {}};
            backend_->nesterov(static_cast<float>(momentum), scalars.tensor, std::span(&of_momentum, 1));
            orthogonalize(*backend_, direction.tensor.reshape({shape.rows, shape.columns}), scratch_);
            backend_->sgd({.learning_rate = static_cast<float>(kLearningRate),
                           .momentum = 0,
                           .weight_decay = static_cast<float>(kWeightDecay),
                           .uses_factor = false},
                          scalars.tensor, {weights.tensor, direction.tensor, {}, {}, {}});
        }
        return weights.read();
    }

    // |weights − golden| / |golden|.
    double distance(const std::vector<float>& weights, const std::string& name) const {
        const safetensors::TensorInfo* const tensor = golden_.header().find(name);
        check(tensor != nullptr && tensor->dtype == safetensors::DType::kF64, "the golden lacks " + name);
        std::vector<double> wanted(weights.size());
        std::memcpy(wanted.data(), golden_.bytes(*tensor).data(), wanted.size() * sizeof(double));
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            difference += std::pow(static_cast<double>(weights[i]) - wanted[i], 2);
            size += wanted[i] * wanted[i];
        }
        return std::sqrt(difference / size);
    }

    const std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(GetParam(), 2);
    tensor::Arena arena_{backend_->allocate(1 << 20).value()};
    const OrthogonalizeScratch scratch_ = OrthogonalizeScratch::lay_out(arena_, 40 * 24, 24);
    const safetensors::File golden_ = safetensors::File::open(ATOLL_GOLDEN_DIR "/optim/golden.safetensors").value();
};

TEST_P(MuonGoldenTest, WeightsAreThoseOfTorch) {
    for (const MatrixShape& shape : kMatrices) {
        for (const int steps : {1, 10, 100}) {
            const std::string name = "muon." + shape.name() + "." + std::to_string(steps);
            EXPECT_LE(distance(weights_after(shape, steps), name), kFarthest) << name;
        }
    }
}

TEST_P(MuonGoldenTest, GradientsAreScaledFirst) {
    EXPECT_LE(distance(weights_after(kMatrices[0], 10, kMuonMomentum, 4), "muon.12x40.10"), kFarthest);
}

TEST_P(MuonGoldenTest, AnotherMomentumIsFarOff) {
    EXPECT_GT(distance(weights_after(kMatrices[0], 100, 0.94), "muon.12x40.100"), 100 * kFarthest);
}

// As torch's are, which divides by no less than 1e-7.
TEST_P(MuonGoldenTest, AMatrixOfZerosStaysAsItIs) {
    const OnDevice<> zeros(*backend_, {12, 40}, 0.0F);
    orthogonalize(*backend_, zeros.tensor, scratch_);
    EXPECT_EQ(zeros.read(), std::vector<float>(480, 0.0F));
}

INSTANTIATE_TEST_SUITE_P(All, MuonGoldenTest, testing::ValuesIn(kernels::tested_backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::optim
