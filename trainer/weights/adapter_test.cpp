#include "trainer/weights/adapter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"

namespace atl::weights {
namespace {

class AdapterTest : public testing::Test {
  protected:
    // What load_adapter_config says of the config with one key changed.
    Result<model::LoraOptions> load_with(const std::string& key, const nlohmann::json& value) const {
        nlohmann::json config = {{"peft_type", "LORA"},
                                 {"r", 4},
                                 {"lora_alpha", 8},
                                 {"target_modules", {"v_proj", "q_proj"}},
                                 {"loftq_config", nlohmann::json::object()},
                                 {"rank_pattern", nlohmann::json::object()},
                                 {"use_dora", false},
                                 {"bias", "none"}};
        config[key] = value;
        EXPECT_TRUE(write_file_atomic(directory_.path() / kAdapterConfig, config.dump()).ok());
        return load_adapter_config(directory_.path());
    }
    TemporaryDirectory directory_;
};

TEST_F(AdapterTest, WhatWasWrittenIsRead) {
    model::LoraOptions options{2, 6, 0.25, {"q_proj"}};
    auto writer = create_adapter(directory_.path(), {{"a", {2, 3}, DType::kF32}, {"b", {3}, DType::kBF16}}, options,
                                 {"base", "nf4", "0123"});
    ASSERT_TRUE(writer.ok());
    const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    ASSERT_TRUE(writer->append(std::span(values).first(4)).ok());
    ASSERT_TRUE(writer->append(std::span(values).subspan(4)).ok());
    ASSERT_TRUE(writer->finish().ok());
    const auto read = load_adapter_config(directory_.path());
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->rank, 2);
    EXPECT_EQ(read->scale_of("q_proj"), 3.0F);
    EXPECT_EQ(read->dropout, 0.25);
    EXPECT_EQ(read->targets, std::vector<std::string>{"q_proj"});
    const auto base = load_adapter_base(directory_.path());
    ASSERT_TRUE(base.ok()) << base.error().message;
    EXPECT_EQ(base->directory, "base");
    EXPECT_EQ(base->quantization, "nf4");
    EXPECT_EQ(base->sha256, "0123");
    const auto weights = WeightReader::open_adapter(directory_.path());
    ASSERT_TRUE(weights.ok());
    std::vector<float> back(3);
    ASSERT_TRUE(weights->read("b", 0, 3, back).ok());
    EXPECT_EQ(back, (std::vector<float>{7, 8, 9}));
}

TEST_F(AdapterTest, WeightsDoNotTakeTheirPlaceUnderAnotherConfiguration) {
    const auto write = [&](float value) {
        auto writer = create_adapter(directory_.path(), {{"a", {1}, DType::kF32}}, {2, 2, 0, {"q_proj"}},
                                     {"base", kNotQuantized, ""});
        return writer.ok() && writer->append(std::span(&value, 1)).ok() && writer->finish().ok();
    };
    const auto file = directory_.path() / kAdapterFile;
    ASSERT_TRUE(write(1));
    const std::string old = read_file(file).value();
    std::filesystem::remove(directory_.path() / kAdapterConfig);
    std::filesystem::create_directories(directory_.path() / kAdapterConfig / "stays");  // cannot be replaced
    EXPECT_FALSE(write(2));
    EXPECT_EQ(read_file(file).value() == old, true);

    std::filesystem::remove_all(directory_.path() / kAdapterConfig);
    ASSERT_TRUE(write(1));
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    EXPECT_FALSE(write(2));
    EXPECT_FALSE(load_adapter_config(directory_.path()).ok()) << "half an adapter is none";
}

TEST_F(AdapterTest, AKeyThatChangesTheMathematicsIsRefusedByName) {
    ASSERT_TRUE(load_with("task_type", "CAUSAL_LM").ok());
    const std::vector<std::pair<std::string, nlohmann::json>> cases = {{"use_dora", true},
                                                                       {"use_rslora", 1},
                                                                       {"bias", "all"},
                                                                       {"rank_pattern", {{"q", 0}}},
                                                                       {"modules_to_save", {"lm_head"}},
                                                                       {"peft_type", "IA3"},
                                                                       {"target_modules", "(?<=x).*_proj"},
                                                                       {"lora_bias", true},
                                                                       {"fan_in_fan_out", true},
                                                                       {"exclude_modules", {"q_proj"}},
                                                                       {"some_new_key", 1},
                                                                       {"init_lora_weights", "pissa"},
                                                                       {"init_lora_weights", "pissa_niter_16"},
                                                                       {"init_lora_weights", "olora"},
                                                                       {"init_lora_weights", 1},
                                                                       {"r", 0}};
    for (const auto& [key, value] : cases) {
        const auto result = load_with(key, value);
        ASSERT_FALSE(result.ok()) << key;
        EXPECT_NE(result.error().message.find(key), std::string::npos) << result.error().message;
        EXPECT_NE(result.error().message.find(kAdapterConfig), std::string::npos) << result.error().message;
    }
}

TEST_F(AdapterTest, ABeginningThatLeavesTheBaseAloneIsTaken) {
    for (const auto& value : {nlohmann::json(true), nlohmann::json(false), nlohmann::json(nullptr),
                              nlohmann::json("gaussian"), nlohmann::json("eva"), nlohmann::json("orthogonal")})
        EXPECT_TRUE(load_with("init_lora_weights", value).ok()) << value;
}

TEST_F(AdapterTest, TargetsAreModulesOrTheirLastParts) {
    const model::LoraOptions options{4, 4, 0, {"layers.1.mlp.up_proj", "q_proj"}};
    EXPECT_TRUE(options.covers("model.layers.0.self_attn.q_proj"));
    EXPECT_TRUE(options.covers("model.layers.1.mlp.up_proj"));
    EXPECT_FALSE(options.covers("model.layers.0.mlp.up_proj"));
    EXPECT_FALSE(options.covers("model.layers.0.self_attn.xq_proj"));
    EXPECT_TRUE((model::LoraOptions{4, 4, 0, {"all-linear"}}.covers("model.layers.0.mlp.up_proj")));
}

}  // namespace
}  // namespace atl::weights
