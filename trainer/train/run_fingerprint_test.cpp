#include "trainer/train/run_fingerprint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/safetensors/file.h"

namespace atl::train {
namespace {

// Runs without weights, on one row.
class RunFingerprintTest : public testing::Test {
  protected:
    RunFingerprintTest() {
        const std::vector<safetensors::TensorInfo> tensors = {{"input_ids", safetensors::DType::kI32, {1, 2}, 0, 0}};
        auto writer = safetensors::Writer::create(file_, tensors).value();
        const std::vector<std::int32_t> ids = {1, 2};
        EXPECT_TRUE(writer.append(std::as_bytes(std::span(ids))).ok() && writer.finish().ok());
    }
    PreparedRun make_run() const {
        return {.config = {}, .directory = {}, .data = {dataset::Dataset::open(file_).value(), 1}, .validation = {}};
    }
    std::string fingerprint(const PreparedRun& run) const { return run_fingerprint(run, *comm_).value(); }

    const TemporaryDirectory directory_;
    const std::filesystem::path file_ = directory_.path() / "rows.safetensors";
    const std::unique_ptr<comm::Comm> comm_ = comm::make_self();
};

TEST_F(RunFingerprintTest, AnotherActivationIsAnotherRun) {
    PreparedRun other = make_run();
    EXPECT_EQ(fingerprint(other), fingerprint(make_run()));
    other.directory.model.config.architecture.activation = model::Activation::kRelu;
    EXPECT_NE(fingerprint(other), fingerprint(make_run()));
}

TEST_F(RunFingerprintTest, ADeviceMakesAnotherRunWhereItComputesInAnotherFormat) {
    PreparedRun on_cpu = make_run(), on_gpu = make_run();
    on_gpu.config.device = run_settings::Device::kCuda;
    EXPECT_EQ(fingerprint(on_gpu), fingerprint(on_cpu)) << "both in fp32";
    on_cpu.config.precision = on_gpu.config.precision = run_settings::Precision::kBf16;
    EXPECT_NE(fingerprint(on_gpu), fingerprint(on_cpu));
    on_cpu.config.compute_dtype = run_settings::Precision::kBf16;
    EXPECT_EQ(fingerprint(on_gpu), fingerprint(on_cpu));
}

// States that are saved have these words; a state of before must go on.
TEST_F(RunFingerprintTest, TheFlagsReadAsInStatesThatWereSavedBefore) {
    const auto flags = nlohmann::json::parse(fingerprint(make_run())).at("flags");
    EXPECT_EQ(flags, nlohmann::json::parse(R"({
        "beta1": 0.9, "beta2": 0.999, "compute-dtype": "fp32", "cross-document-attention": "off",
        "deterministic": false, "eps": 1e-08, "global-batch-size": 0, "loss-scale": 65536.0, "lr": 0.0003,
        "masters": "fp32", "max-grad-norm": 1.0, "moments-dtype": "fp32", "momentum": 0.0, "no-decay-norms": false,
        "optimizer": "adamw", "precision": "fp32", "proximal-mu": 0.0, "quantize": "none", "reduce-dtype": "fp32",
        "residual-dtype": "fp32", "schedule": "constant", "seed": 0, "shuffle": "on", "steps": 0,
        "warmup-steps": 0, "weight-decay": 0.01})"));
    const std::string result = result_fingerprint(fingerprint(make_run()), {});
    EXPECT_EQ(nlohmann::json::parse(result).at("flags").at("save-dtype"), "");
}

}  // namespace
}  // namespace atl::train
