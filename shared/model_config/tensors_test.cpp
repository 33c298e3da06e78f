#include "shared/model_config/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "shared/base/file.h"

namespace atl::model_config {
namespace {

using safetensors::DType;

ModelConfig tiny() {
    return parse_config(R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
        "tie_word_embeddings": true})")
        .value();
}

std::string zeros(const TensorSpec& tensor, DType dtype) {
    std::size_t bytes = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::size_t>(extent);
    return std::string(bytes, '\0');
}

class TensorsTest : public ::testing::Test {
  protected:
    // Zeros, but for `value` in place of the first tensor's last element.
    void write(std::vector<TensorSpec> tensors, DType dtype = DType::kF32, const std::string& value = "") {
        std::vector<safetensors::TensorInfo> infos;
        for (const TensorSpec& tensor : tensors)
            infos.push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});
        auto writer = safetensors::Writer::create(directory_.path() / "model.safetensors", infos).value();
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            std::string bytes = zeros(tensors[i], dtype);
            if (i == 0) bytes.replace(bytes.size() - value.size(), value.size(), value);
            ASSERT_TRUE(writer.append(std::as_bytes(std::span(bytes))).ok());
        }
        ASSERT_TRUE(writer.finish().ok());
    }
    Status check() const {
        const auto files = safetensors::Model::open(directory_.path()).value();
        const ModelConfig config = tiny();
        return check_tensors(files, tensors_of(config), ignorable_tensors(config), "config.json", "DIR");
    }
    // Read in pieces of so many bytes.
    Status values(std::size_t piece_bytes = 1 << 20) const {
        const auto files = safetensors::Model::open(directory_.path()).value();
        const ValueCheck check(files);
        const auto path = directory_.path() / "model.safetensors";
        const std::string bytes = read_file(path).value();
        for (std::size_t at = 0; at < bytes.size(); at += piece_bytes)
            ATOLL_RETURN_IF_ERROR(check.check(
                path, at, std::as_bytes(std::span(bytes)).subspan(at).first(std::min(piece_bytes, bytes.size() - at))));
        return {};
    }
    TemporaryDirectory directory_{"atoll-tensors-test"};
};

TEST_F(TensorsTest, AllThatTheConfigurationAsksForAndWhatSaysNothingAreTaken) {
    auto tensors = tensors_of(tiny());
    write(tensors);
    EXPECT_TRUE(check().ok()) << check().error().message;
    tensors.push_back({kHeadWeight, {10, 8}});  // tied
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}});
    write(tensors, DType::kBF16);
    EXPECT_TRUE(check().ok()) << check().error().message;
}

TEST_F(TensorsTest, WhatIsMissingTooMuchOrOfAnotherShapeIsNamed) {
    const auto all = tensors_of(tiny());
    auto wrong = all;
    wrong.pop_back();
    write(wrong);
    EXPECT_NE(check().error().message.find("\"model.norm.weight\" is missing"), std::string::npos);
    wrong = all;
    wrong.push_back({"model.layers.1.mlp.up_proj.weight", {12, 8}});
    write(wrong);
    EXPECT_NE(check().error().message.find("layers.1.mlp.up_proj.weight\" is none"), std::string::npos);
    wrong = all;
    wrong[0].shape = {11, 8};
    write(wrong);
    EXPECT_NE(check().error().message.find("[11, 8], but config.json needs [10, 8]"), std::string::npos)
        << check().error().message;
    write(all, DType::kI32);
    EXPECT_NE(check().error().message.find("I32"), std::string::npos);
}

TEST_F(TensorsTest, AValueThatIsNotFiniteIsNamedWithItsElement) {
    struct Case {
        DType dtype;
        std::string value;  // little endian
    };
    const std::string nan16("\x01\x7e", 2), infinity16("\x00\xfc", 2), infinity_b16("\x80\x7f", 2);
    float nan32 = std::numeric_limits<float>::quiet_NaN();
    const std::string bytes32(reinterpret_cast<const char*>(&nan32), 4);
    for (const Case& bad : {Case{DType::kF16, nan16}, Case{DType::kF16, infinity16}, Case{DType::kBF16, infinity_b16},
                            Case{DType::kF32, bytes32}}) {
        write(tensors_of(tiny()), bad.dtype, bad.value);
        for (const std::size_t piece_bytes : {1 << 20, 64, 7, 3, 1}) {  // elements are cut anywhere
            const Status found = values(piece_bytes);
            ASSERT_FALSE(found.ok()) << to_string(bad.dtype) << piece_bytes;
            EXPECT_NE(
                found.error().message.find("embed_tokens.weight\" holds a value that is not finite, at element 79"),
                std::string::npos)
                << found.error().message;
        }
    }
    // The largest values of each format.
    const float large = std::numeric_limits<float>::max();
    for (const Case& good :
         {Case{DType::kF16, std::string("\xff\x7b", 2)}, Case{DType::kBF16, std::string("\x7f\x7f", 2)},
          Case{DType::kF32, std::string(reinterpret_cast<const char*>(&large), 4)}}) {
        write(tensors_of(tiny()), good.dtype, good.value);
        for (const std::size_t piece_bytes : {1 << 20, 7})
            EXPECT_TRUE(values(piece_bytes).ok()) << to_string(good.dtype);
    }
}

}  // namespace
}  // namespace atl::model_config
