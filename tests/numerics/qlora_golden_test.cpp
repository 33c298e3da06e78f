// Adapters on a quantised base, on every backend: the first loss and gradient norm against peft on what bitsandbytes
// leaves of the weights (make_qlora_goldens.py), and all gradients against the CPU's. The program's tests have the
// steps after it (quantized_program_test.cpp).

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "shared/base/file.h"
#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/model/initialize.h"
#include "trainer/model/lora.h"

namespace atl::numerics {
namespace {

constexpr const char* kDirectory = ATOLL_GOLDEN_DIR "/qlora/";

std::unique_ptr<kernels::Backend> make_cpu() {
    return kernels::make_cpu_backend(1).value();
}

// A backend, and the format of the base.
class QloraGoldenTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
  protected:
    static constexpr std::int64_t kRows = 4, kLength = 16;

    QloraGoldenTest() {
        for (std::int32_t row = 0; row < kRows; ++row) {
            for (std::int32_t t = 0; t < kLength; ++t) {
                ids_.push_back((7 * row + t * (row % 3 + 1) + t * t * row) % 61);
                labels_.push_back(t < row % 5 ? -100 : ids_.back());
            }
        }
    }
    static const std::string& format() { return std::get<1>(GetParam()); }
    static nlohmann::json golden() {
        return nlohmann::json::parse(read_file(kDirectory + ("steps_" + format() + ".json")).value());
    }
    static std::vector<float> adapter(const std::string& name) {
        static const safetensors::File file =
            safetensors::File::open(std::string(kDirectory) + "adapter/adapter_model.safetensors").value();
        const auto bytes = file.bytes(*file.header().find(name));
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    std::unique_ptr<EngineModel> load(kernels::Backend& backend, const kernels::Formats& formats = {},
                                      bool quantizes = true) const {
        using parallel::ActivationCheckpointing;
        const auto config = model_config::load_config(kDirectory).value();
        model::Model model = model::make_model(config);
        check(model::add_adapters(model, {4, 8, 0, {"all-linear"}}).ok(), "no adapters");
        if (quantizes) model::quantize_layers(model, format() == "nf4" ? tensor::DType::kNf4 : tensor::DType::kInt8);
        model.use_formats(formats);
        auto loaded = std::make_unique<EngineModel>(std::move(model), model::BatchShape{kRows, kLength}, backend,
                                                    parallel::Checkpointing{ActivationCheckpointing::kFeedForward});
        for (const model::FsdpUnit& unit : loaded->model().units) {
            for (const model::Parameter& parameter : unit.parameters) {
                std::vector<float> weight(static_cast<std::size_t>(parameter.element_count()));
                if (unit.is_adapter) {
                    weight = adapter(parameter.name);
                } else {
                    model::initialize(parameter, 3, 0, weight);
                }
                loaded->set_weight(parameter.name, weight);
            }
        }
        return loaded;
    }
    model::HostBatch rows() const { return {{kRows, kLength}, ids_, labels_, {}}; }
    static std::vector<float> gradients(EngineModel& model) {
        std::vector<float> all;
        for (const model::FsdpUnit& unit : model.model().units) {
            if (!unit.is_adapter) continue;
            for (const model::Parameter& parameter : unit.parameters) {
                const std::vector<float> gradient = model.gradient(parameter.name);
                all.insert(all.end(), gradient.begin(), gradient.end());
            }
        }
        return all;
    }
    static double norm(const std::vector<float>& values) {
        double squares = 0;
        for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
        return std::sqrt(squares);
    }

    std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(std::get<0>(GetParam()), 1);
    std::vector<std::int32_t> ids_, labels_;
};

TEST_P(QloraGoldenTest, TheFirstStepIsThatOfPeftOnTheBaseOfBitsandbytes) {
    const auto model = load(*backend_);
    const double loss = golden()["loss"][0], gradient_norm = golden()["grad_norm"][0];
    EXPECT_NEAR(model->evaluate(rows()) / loss, 1.0, 1e-5);
    EXPECT_NEAR(model->train(rows()) / loss, 1.0, 1e-5);
    EXPECT_NEAR(norm(gradients(*model)) / gradient_norm, 1.0, 1e-5);
    // A control: the tolerance can tell a quantised base from the model itself.
    EXPECT_GT(std::abs(load(*backend_, {}, false)->evaluate(rows()) / loss - 1.0), 5e-5);
}

TEST_P(QloraGoldenTest, GradientsAreThoseOfACpu) {
    const auto model = load(*backend_);
    model->train(rows());
    const auto cpu = make_cpu();
    const auto expected = load(*cpu);
    expected->train(rows());
    EXPECT_LE(relative_l2(gradients(*model), gradients(*expected)), 1e-5);
}

// As a GPU computes, which rounds the weights to bf16, too: no further from fp32 than a CPU that computes so.
TEST_P(QloraGoldenTest, InBf16GradientsAreAsNearAsACpusAre) {
    kernels::Formats bf16;
    bf16.weights = bf16.activations = bf16.residual = tensor::DType::kBF16;
    const auto cpu = make_cpu();
    const auto exact = load(*cpu), on_cpu = load(*cpu, bf16), model = load(*backend_, bf16);
    for (EngineModel* const one : {exact.get(), on_cpu.get(), model.get()}) one->train(rows());
    const double of_cpu = relative_l2(gradients(*on_cpu), gradients(*exact));
    EXPECT_GT(of_cpu, 1e-3);
    EXPECT_LE(relative_l2(gradients(*model), gradients(*exact)), 1.5 * of_cpu);
}

INSTANTIATE_TEST_SUITE_P(All, QloraGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(kernels::tested_backends()),
                                            ::testing::Values("nf4", "int8")),
                         [](const auto& instance) {
                             return std::get<0>(instance.param) + "_" + std::get<1>(instance.param);
                         });

}  // namespace
}  // namespace atl::numerics
