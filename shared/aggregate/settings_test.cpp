#include "shared/aggregate/settings.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace atl::aggregate
