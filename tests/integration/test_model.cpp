#include "tests/integration/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "shared/base/file.h"
#include "shared/model_config/token_counts.h"

namespace atl {

void write_model(const std::filesystem::path& directory, const ModelOptions& options) {
    std::filesystem::create_directories(directory);
    ASSERT_TRUE(write_file_atomic(directory / "config.json", R"({"architectures":["Test"]})").ok());
    std::vector<safetensors::TensorInfo> tensors{{"layer.weight", options.dtype, {options.elements}, 0, 0},
                                                 {"norm.weight", options.dtype, {3}, 0, 0}};
    if (options.tokens > 0) {
        tensors.front().name = "model.embed_tokens.weight";
        tensors.front().shape = {options.tokens, options.elements / options.tokens};
    }
    if (!options.token_counts.empty()) {
        const std::vector<safetensors::TensorInfo> counts{
            {model_config::kTokenCounts, safetensors::DType::kF32, {std::ssize(options.token_counts)}, 0, 0}};
        auto writer = safetensors::Writer::create(directory / model_config::kTokenCountsFile, counts).value();
        ASSERT_TRUE(writer.append(std::as_bytes(std::span(options.token_counts))).ok());
        ASSERT_TRUE(writer.finish().ok());
    }
    std::vector<float> values;
    for (std::int64_t i = 0; i < options.elements + 3; ++i)
        values.push_back(options.offset + static_cast<float>(i % 1013) * 0.37F);
    if (options.nan) values.back() = std::numeric_limits<float>::quiet_NaN();
    auto writer = safetensors::Writer::create(directory / options.file, tensors).value();
    if (options.dtype != safetensors::DType::kF32) std::fill(values.begin(), values.end(), 0.0F);
    ASSERT_TRUE(writer.append(std::as_bytes(std::span(values))).ok());
    ASSERT_TRUE(writer.finish().ok());
}

}  // namespace atl
