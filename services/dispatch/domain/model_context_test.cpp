#include "services/dispatch/domain/model_context.h"

#include <gtest/gtest.h>

#include <string>

namespace atl::dispatch {
namespace {

using json::Json;

std::optional<std::int64_t> tokens_of(const char* text) {
    return row_tokens_max(Json::parse(text));
}

TEST(ModelContextTest, TheLimitIsTheModelsNumberOfPositions) {
    EXPECT_EQ(tokens_of(R"({"max_position_embeddings": 4096})"), 4096);
    EXPECT_EQ(tokens_of("{}"), 2048) << "what the trainer takes for a configuration that does not say";
    EXPECT_EQ(tokens_of(R"({"max_position_embeddings": null})"), 2048);
    EXPECT_EQ(tokens_of(R"({"max_position_embeddings": 64, "rope_scaling": null, "rope_parameters": null})"), 64);
}

TEST(ModelContextTest, EachFamilyHasItsOwnNumberWhereNothingIsSaid) {
    EXPECT_EQ(tokens_of(R"({"model_type": "qwen2"})"), 32768);
    EXPECT_EQ(tokens_of(R"({"model_type": "qwen3"})"), 32768);
    EXPECT_EQ(tokens_of(R"({"model_type": "mistral", "sliding_window": null})"), 131072);
    EXPECT_EQ(tokens_of(R"({"architectures": ["Qwen2ForCausalLM"]})"), 32768) << "the architecture is enough";
    EXPECT_EQ(tokens_of(R"({"architectures": ["MistralForCausalLM"], "max_position_embeddings": 32768})"), 4096);
}

TEST(ModelContextTest, AMistralsWindowIsALimitToo) {
    const auto of_mistral = [](const std::string& more) {
        return tokens_of((R"({"model_type": "mistral", "max_position_embeddings": 64)" + more + "}").c_str());
    };
    EXPECT_EQ(of_mistral(R"(, "sliding_window": 32)"), 32);
    EXPECT_EQ(of_mistral(R"(, "sliding_window": 128)"), 64);
    EXPECT_EQ(of_mistral(R"(, "sliding_window": null)"), 64);
    EXPECT_EQ(of_mistral(R"(, "sliding_window": 32, "rope_scaling": {"type": "dynamic", "factor": 2.0})"), 32);
    EXPECT_EQ(tokens_of(R"({"model_type": "mistral"})"), 4096) << "the trainer's default";
    EXPECT_EQ(tokens_of(R"({"model_type": "qwen2", "max_position_embeddings": 64, "sliding_window": 32})"), 64);
}

TEST(ModelContextTest, OnlyScalingThatFollowsTheLengthLiftsIt) {
    for (const char* scaling : {R"("rope_parameters": {"rope_type": "dynamic", "factor": 2.0})",
                                R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0})",
                                R"("rope_scaling": {"type": "dynamic", "factor": 2.0})"})
        EXPECT_EQ(tokens_of((std::string("{\"max_position_embeddings\": 64, ") + scaling + "}").c_str()), std::nullopt)
            << scaling;
    for (const char* kind : {"default", "linear", "llama3", "yarn"}) {
        const Json config = {{"max_position_embeddings", 64}, {"rope_scaling", {{"rope_type", kind}, {"factor", 8}}}};
        EXPECT_EQ(row_tokens_max(config), 64) << kind;
    }
}

TEST(ModelContextTest, WhatCannotBeReadIsLeftToTheTrainer) {
    for (const char* text : {"[]", R"({"max_position_embeddings": "many"})", R"({"max_position_embeddings": 0})",
                             R"({"max_position_embeddings": 1.5})"})
        EXPECT_EQ(tokens_of(text), std::nullopt) << text;
}

}  // namespace
}  // namespace atl::dispatch
