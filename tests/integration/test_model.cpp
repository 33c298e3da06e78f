#include "tests/integration/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "shared/base/file.h"
#include "shared/delta/control_variate.h"
#include "shared/delta/delta.h"
#include "shared/model_config/token_counts.h"

namespace atl {

namespace {

// Each block begins with the value, and its half follows.
void write_control_variate(const std::filesystem::path& path, const std::vector<safetensors::TensorInfo>& of_model,
                           const ModelOptions& options) {
    std::vector<safetensors::TensorInfo> tensors;
    std::string data;
    for (const safetensors::TensorInfo& tensor : of_model) {
        tensors.push_back(delta::packed_tensor(delta::Format::kInt8, tensor));
        std::string block(delta::block_bytes(delta::Format::kInt8), '\0');
        std::vector<float> values = {options.control_variate, options.control_variate / 2};
        ASSERT_TRUE(delta::encode_block(delta::Format::kInt8, values, std::as_writable_bytes(std::span(block))));
        const std::uint64_t blocks = delta::block_count(static_cast<std::uint64_t>(tensor.element_count()));
        for (std::uint64_t i = 0; i < blocks; ++i) data += block;
    }
    const std::string head =
        safetensors::make_header(tensors, {{delta::kFormatKey, "int8"}, {delta::kBaseKey, options.trained_from}});
    ASSERT_TRUE(write_file_atomic(path, head + data).ok());
}

}  // namespace

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
    if (options.control_variate != 0) write_control_variate(directory / delta::kControlVariateFile, tensors, options);
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
