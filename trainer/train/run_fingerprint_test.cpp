#include "trainer/train/run_fingerprint.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/safetensors/file.h"

namespace atl::train {
namespace {

TEST(RunFingerprintTest, AnotherActivationIsAnotherRun) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "rows.safetensors";
    const std::vector<safetensors::TensorInfo> tensors = {{"input_ids", safetensors::DType::kI32, {1, 2}, 0, 0}};
    auto writer = safetensors::Writer::create(file, tensors).value();
    const std::vector<std::int32_t> ids = {1, 2};
    ASSERT_TRUE(writer.append(std::as_bytes(std::span(ids))).ok() && writer.finish().ok());
    const PreparedRun run{
        .config = {}, .directory = {}, .data = {dataset::Dataset::open(file).value(), 1}, .validation = {}};
    PreparedRun other{
        .config = {}, .directory = {}, .data = {dataset::Dataset::open(file).value(), 1}, .validation = {}};
    const auto self = comm::make_self();
    const std::string fingerprint = run_fingerprint(run, *self).value();
    EXPECT_EQ(run_fingerprint(other, *self).value(), fingerprint);
    other.directory.model.config.architecture.activation = model::Activation::kRelu;
    EXPECT_NE(run_fingerprint(other, *self).value(), fingerprint);
}

}  // namespace
}  // namespace atl::train
