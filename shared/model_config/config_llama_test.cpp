// Mistral, Qwen2 and Qwen3: where their config.json differs from Llama's.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shared/model_config/model_config.h"

namespace atl::model_config {
namespace {

using nlohmann::json;

json family(const char* architecture, const char* model_type) {
    json object = json::parse(R"({"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "hidden_act": "silu", "attention_dropout": 0.0,
        "tie_word_embeddings": true, "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}})");
    object.update({{"architectures", {architecture}}, {"model_type", model_type}});
    return object;
}

json mistral() {
    return family("MistralForCausalLM", "mistral");
}
json qwen2() {
    return family("Qwen2ForCausalLM", "qwen2");
}
json qwen3() {
    return family("Qwen3ForCausalLM", "qwen3");
}

TEST(FamilyConfigTest, AMistralsWindowLimitsItsRows) {
    json object = mistral();
    object["sliding_window"] = nullptr;
    EXPECT_EQ(parse_config(object.dump()).value().length_max(), 64);
    EXPECT_EQ(parse_config(object.dump()).value().length_max_key(), "max_position_embeddings");
    object["sliding_window"] = 48;
    EXPECT_EQ(parse_config(object.dump()).value().length_max(), 48);
    EXPECT_EQ(parse_config(object.dump()).value().length_max_key(), "sliding_window");
    object["sliding_window"] = 100;
    EXPECT_EQ(parse_config(object.dump()).value().length_max(), 64);
    object.erase("sliding_window");
    object.erase("max_position_embeddings");
    EXPECT_EQ(parse_config(object.dump()).value().length_max(), 4096) << "transformers' default";
}

TEST(FamilyConfigTest, TheFamiliesDifferAsInTransformers) {
    for (const json& object : {mistral(), qwen2(), qwen3()}) {
        json bare = object;
        for (const char* key : {"num_key_value_heads", "head_dim"}) bare.erase(key);
        bare.update({{"hidden_size", 192}, {"num_attention_heads", 32}});
        const ModelConfig config = parse_config(object.dump()).value(), assumed = parse_config(bare.dump()).value();
        const std::string type(config.architecture.model_type);
        EXPECT_EQ(config.head_dim, 16);
        EXPECT_EQ(assumed.head_dim, type == "qwen3" ? 128 : 6);
        EXPECT_EQ(assumed.num_key_value_heads, type == "mistral" ? 8 : 32);
        EXPECT_EQ(config.architecture.qkv_bias, type == "qwen2");
        EXPECT_FALSE(config.architecture.out_bias);
        EXPECT_EQ(config.architecture.head_norms, type == "qwen3");
        bare["num_key_value_heads"] = nullptr;
        EXPECT_EQ(parse_config(bare.dump()).value().num_key_value_heads, 32) << "as many as query heads";
        bare.erase("architectures");
        EXPECT_EQ(parse_config(bare.dump()).value().architecture.model_type, type);
    }
    json biased = qwen3();
    biased["attention_bias"] = true;
    EXPECT_TRUE(parse_config(biased.dump()).value().architecture.qkv_bias);
    EXPECT_TRUE(parse_config(biased.dump()).value().architecture.out_bias);
}

// Of the config.json files of Qwen2.5-7B and Qwen3-8B.
TEST(FamilyConfigTest, WhatQwenDoesNotUseChangesNothing) {
    for (json object : {qwen2(), qwen3()}) {
        object.update({{"use_sliding_window", false},
                       {"sliding_window", 32},
                       {"max_window_layers", 1},
                       {"layer_types", {"full_attention", "full_attention"}}});
        const auto config = parse_config(object.dump());
        ASSERT_TRUE(config.ok()) << config.error().field << " " << config.error().message;
        EXPECT_EQ(config->length_max(), 64);
    }
    json published = qwen2();
    published["use_mrope"] = false;
    EXPECT_TRUE(parse_config(published.dump()).ok());
}

TEST(FamilyConfigTest, WhatTheFamiliesMayHaveAndIsNotBuiltIsRefusedByName) {
    const std::vector<std::pair<json, json>> cases = {
        {mistral(), {{"sliding_window", 0}}},
        {mistral(), {{"sliding_window", "wide"}}},
        {mistral(), {{"attention_bias", true}}},
        {mistral(), {{"layer_types", {"full_attention", "full_attention"}}}},
        {mistral(), {{"attention_dropout", 0.1}}},
        {qwen2(), {{"use_sliding_window", true}}},
        {qwen2(), {{"use_mrope", true}}},
        {qwen2(), {{"attention_bias", false}}},
        {qwen2(), {{"layer_types", {"full_attention", "sliding_attention"}}}},
        {qwen2(), {{"num_key_value_heads", 3}}},
        {qwen3(), {{"use_sliding_window", true}}},
        {qwen3(), {{"layer_types", "full_attention"}}},
        {qwen3(), {{"attention_bias", 1}}},
        {qwen3(), {{"mlp_bias", false}}},
        {qwen3(), {{"num_experts", 8}}},
        {qwen3(), {{"hidden_act", "gelu"}}},
    };
    for (const auto& [model, change] : cases) {
        json object = model;
        object.update(change);
        const auto config = parse_config(object.dump());
        ASSERT_FALSE(config.ok()) << change;
        EXPECT_EQ(config.error().field, change.begin().key()) << config.error().message;
    }
}

}  // namespace
}  // namespace atl::model_config
