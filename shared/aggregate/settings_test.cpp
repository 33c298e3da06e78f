#include "shared/aggregate/settings.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace atl::aggregate {
namespace {

using json::Json;

const Json kLlama = {{"model_type", "llama"},      {"hidden_size", 64},    {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},   {"rms_norm_eps", 1e-5}, {"rope_theta", 10000.0},
                     {"rope_scaling", nullptr},    {"dtype", "bfloat16"},  {"attention_bias", false},
                     {"_name_or_path", "/models"}, {"hidden_act", "silu"}};
const Json kAdapter = {
    {"peft_type", "LORA"}, {"r", 8}, {"lora_alpha", 16}, {"target_modules", {"q_proj", "v_proj"}}, {"bias", "none"}};

Json changed(Json object, const char* key, const Json& value) {
    object[key] = value;
    return object;
}

TEST(ModelSettingsTest, WhatChangesTheComputationIsNamed) {
    for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{{"rope_theta", 500000.0},
                                                                              {"rms_norm_eps", 1e-6},
                                                                              {"num_attention_heads", 8},
                                                                              {"hidden_size", 48},
                                                                              {"head_dim", 8},
                                                                              {"num_key_value_heads", nullptr},
                                                                              {"rope_scaling", {{"factor", 8.0}}},
                                                                              {"sliding_window", 32},
                                                                              {"hidden_act", "gelu"},
                                                                              {"attention_bias", true}}) {
        const std::string named = differing_model_setting(kLlama, changed(kLlama, key, value));
        EXPECT_EQ(named, key) << "and not head_dim, which nobody set";
        EXPECT_NE(differing_model_setting(changed(kLlama, key, value), kLlama), "") << key;
    }
}

TEST(ModelSettingsTest, WhatOneModelAloneNamesChangesTheComputation) {
    Json plain = kLlama;
    plain.erase("attention_bias");
    for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{{"partial_rotary_factor", 0.5},
                                                                              {"rotary_pct", 0.25},
                                                                              {"attention_bias", true},
                                                                              {"mlp_bias", true},
                                                                              {"logit_scale", 0.0625},
                                                                              {"logits_scaling", 8.0},
                                                                              {"embedding_multiplier", 12.0},
                                                                              {"residual_multiplier", 0.22},
                                                                              {"attention_multiplier", 0.0078},
                                                                              {"query_pre_attn_scaling", 256}}) {
        const Json with = changed(plain, key, value);
        EXPECT_EQ(differing_model_setting(plain, with), key);
        EXPECT_EQ(differing_model_setting(with, plain), key);
        EXPECT_EQ(differing_model_setting(with, changed(plain, key, 3)), key);
        EXPECT_EQ(differing_model_setting(with, with), "") << key;
    }
    for (const char* key : {"attention_bias", "mlp_bias", "logits_scaling"})
        for (const Json& unset : {Json(false), Json()})
            EXPECT_EQ(differing_model_setting(plain, changed(plain, key, unset)), "") << key << " is as if not there";
}

TEST(ModelSettingsTest, TheContextCountsWhereRotationsDependOnIt) {
    const auto differs = [](const Json& rope, const char* member) {
        const Json a = changed(changed(kLlama, "max_position_embeddings", 128), member, rope);
        return differing_model_setting(a, changed(a, "max_position_embeddings", 256));
    };
    for (const char* member : {"rope_scaling", "rope_parameters"}) {
        for (const char* type : {"dynamic", "longrope", "yarn"})
            EXPECT_EQ(differs({{"rope_type", type}, {"factor", 2.0}}, member), "max_position_embeddings") << type;
        for (const char* type : {"linear", "llama3", "default"})
            EXPECT_EQ(differs({{"rope_type", type}, {"factor", 2.0}}, member), "") << type;
        EXPECT_EQ(differs({{"rope_type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 128}}, member),
                  "");
    }
    EXPECT_EQ(differs({{"type", "dynamic"}, {"factor", 2.0}}, "rope_scaling"), "max_position_embeddings");
    EXPECT_EQ(differs(nullptr, "rope_scaling"), "");
}

TEST(ModelSettingsTest, NotesAndFormsMayDiffer) {
    EXPECT_EQ(differing_model_setting(kLlama, kLlama), "");
    for (const char* note : {"dtype", "_name_or_path", "transformers_version", "use_cache", "initializer_range"})
        EXPECT_EQ(differing_model_setting(kLlama, changed(kLlama, note, "other")), "") << note;
    EXPECT_EQ(differing_model_setting(kLlama, changed(kLlama, "head_dim", 16)), "") << "the same as without it";
    EXPECT_EQ(differing_model_setting(kLlama, changed(kLlama, "mlp_bias", false)), "");
    Json newer = kLlama;
    newer.erase("rope_theta");
    newer.erase("rope_scaling");
    newer["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
    EXPECT_EQ(differing_model_setting(kLlama, newer), "") << "transformers 5 writes it so";
    newer["rope_parameters"]["rope_theta"] = 500000.0;
    EXPECT_EQ(differing_model_setting(kLlama, newer), "rope_theta");
}

TEST(AdapterSettingsTest, TheScaleIsPeftsAndWhatIsNoPlainProductIsNamed) {
    EXPECT_EQ(parse_lora_scale(kAdapter)->of_rank(8), 2);
    EXPECT_EQ(parse_lora_scale(changed(kAdapter, "use_rslora", true))->of_rank(4), 8);
    EXPECT_EQ(parse_lora_scale({{"r", 4}})->of_rank(4), 2) << "peft's alpha is 8";
    for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{{"lora_alpha", 0},
                                                                              {"lora_alpha", "8"},
                                                                              {"lora_alpha", 1e10},
                                                                              {"peft_type", "LOHA"},
                                                                              {"use_rslora", 1},
                                                                              {"use_dora", true},
                                                                              {"alpha_pattern", {{"q_proj", 3}}},
                                                                              {"modules_to_save", {"lm_head"}}}) {
        const auto scale = parse_lora_scale(changed(kAdapter, key, value));
        ASSERT_FALSE(scale.ok()) << key;
        EXPECT_EQ(scale.error().field, key);
    }
}

TEST(AdapterSettingsTest, WhatChangesTheComputationIsNamed) {
    for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{{"r", 16},
                                                                              {"lora_alpha", 32},
                                                                              {"lora_alpha", nullptr},
                                                                              {"use_rslora", true},
                                                                              {"target_modules", {"q_proj"}},
                                                                              {"target_modules", "all-linear"},
                                                                              {"alpha_pattern", {{"q_proj", 4}}},
                                                                              {"use_dora", true},
                                                                              {"bias", "all"}})
        EXPECT_EQ(differing_adapter_setting(kAdapter, changed(kAdapter, key, value)), key) << value;
}

TEST(AdapterSettingsTest, NotesAndOrderMayDiffer) {
    EXPECT_EQ(differing_adapter_setting(kAdapter, changed(kAdapter, "target_modules", {"v_proj", "q_proj"})), "");
    for (const char* note : {"base_model_name_or_path", "peft_version", "inference_mode", "lora_dropout"})
        EXPECT_EQ(differing_adapter_setting(kAdapter, changed(kAdapter, note, "other")), "") << note;
    EXPECT_EQ(differing_adapter_setting(kAdapter, changed(kAdapter, "use_rslora", false)), "");
    EXPECT_EQ(differing_adapter_setting(kAdapter, changed(kAdapter, "rank_pattern", Json::object())), "");
}

TEST(AdapterSettingsTest, WhereOnlyTheScaleDiffersTheProductIsNamed) {
    const TemporaryDirectory directory;
    const auto refusal = [&](const Json& first, const Json& second) {
        std::vector<std::filesystem::path> paths = {directory.path() / "a", directory.path() / "b"};
        for (std::size_t i = 0; i < 2; ++i) {
            std::filesystem::create_directories(paths[i]);
            check(write_file_atomic(paths[i] / "adapter_config.json", (i == 0 ? first : second).dump()).ok(), "write");
        }
        const Status status = check_settings(paths);
        return status.ok() ? std::string() : status.error().message;
    };
    const std::string product = "--strategy product";
    for (const auto& [key, value] :
         std::vector<std::pair<const char*, Json>>{{"r", 16}, {"lora_alpha", 32}, {"use_rslora", true}}) {
        const std::string said = refusal(kAdapter, changed(kAdapter, key, value));
        EXPECT_NE(said.find(std::string(key) + " is "), std::string::npos) << said;
        EXPECT_NE(said.find(product), std::string::npos) << said;
    }
    const Json other = changed(kAdapter, "lora_alpha", 32);
    const Json dora = changed(kAdapter, "use_dora", true);
    for (const auto& [first, second] : std::vector<std::pair<Json, Json>>{
             {kAdapter, changed(other, "target_modules", {"q_proj"})}, {dora, changed(dora, "lora_alpha", 32)}}) {
        const std::string said = refusal(first, second);
        EXPECT_NE(said.find("lora_alpha is 32"), std::string::npos) << said;
        EXPECT_EQ(said.find(product), std::string::npos) << said;
    }
}

}  // namespace
}  // namespace atl::aggregate
