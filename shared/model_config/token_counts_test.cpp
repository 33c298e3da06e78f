#include "shared/model_config/token_counts.h"

#include <gtest/gtest.h>

namespace atl::model_config {
namespace {

safetensors::Header header_of(std::vector<safetensors::TensorInfo> tensors) {
    safetensors::Header header;
    header.tensors = std::move(tensors);
    return header;
}

TEST(TokenCountsTest, EmbeddingAndHeadHaveARowForEachToken) {
    EXPECT_TRUE(has_token_rows("model.embed_tokens.weight", {10, 4}));
    EXPECT_TRUE(has_token_rows("model.decoder.embed_tokens.weight", {10, 4}));
    EXPECT_TRUE(has_token_rows("lm_head.weight", {10, 4}));
    EXPECT_FALSE(has_token_rows("lm_head.weight", {10}));
    EXPECT_FALSE(has_token_rows("model.decoder.embed_positions.weight", {10, 4}));
    EXPECT_FALSE(has_token_rows("model.layers.0.mlp.up_proj.weight", {10, 4}));
}

TEST(TokenCountsTest, AFileHasJustOneNumberForEachToken) {
    using safetensors::DType;
    EXPECT_TRUE(check_token_counts(header_of({{kTokenCounts, DType::kF32, {10}, 0, 40}}), 10).ok());
    const auto error = check_token_counts(header_of({{kTokenCounts, DType::kF32, {9}, 0, 36}}), 10).error();
    EXPECT_EQ(error.field, kTokenCountsFile);
    EXPECT_EQ(error.message, "has counts of the shape [9], but the model has 10 tokens");
    for (const auto& header : {header_of({}), header_of({{"counts", DType::kF32, {10}, 0, 40}}),
                               header_of({{kTokenCounts, DType::kF16, {10}, 0, 20}}),
                               header_of({{kTokenCounts, DType::kF32, {10}, 0, 40}, {"w", DType::kF32, {1}, 40, 44}})})
        EXPECT_NE(check_token_counts(header, 10).error().message.find("one tensor \"token_counts\""),
                  std::string::npos);
}

}  // namespace
}  // namespace atl::model_config
