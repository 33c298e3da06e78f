#include "shared/adapter/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shared/adapter/initial_adapter.h"
#include "shared/base/file.h"

namespace atl::adapter {
namespace {

using model_config::TensorSpec;
using safetensors::DType;

const std::vector<TensorSpec> kModel = {{"model.embed_tokens.weight", {64, 8}},
                                        {"model.layers.0.self_attn.q_proj.weight", {6, 8}},
                                        {"model.layers.0.self_attn.q_proj.bias", {6}},
                                        {"model.layers.0.mlp.up_proj.weight", {16, 8}},
                                        {"model.norm.weight", {8}},
                                        {"lm_head.weight", {64, 8}}};

std::vector<std::string> names_of(const std::vector<TensorSpec>& tensors) {
    std::vector<std::string> names;
    for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
    return names;
}

TEST(AdapterTest, ATargetIsAWholeNameOrItsEndAfterADot) {
    const std::vector<std::string> parts = {"model", "layers", "0", "10", "self_attn", "q_proj", "proj", "lm_head"};
    std::vector<std::string> names = parts;
    for (const std::string& a : parts)
        for (const std::string& b : parts) {
            names.push_back(a + "." + b);
            for (const std::string& c : parts) names.push_back(a + "." + b + "." + c);
        }
    for (const std::string& target : names)
        for (const std::string& module : names) {
            std::vector<std::string> targets = {"another", target, "zero"};
            std::ranges::sort(targets);
            const LoraOptions options{.rank = 2, .alpha = 2, .targets = targets};
            ASSERT_EQ(options.covers(module), answers_to(module, target)) << module << " " << target;
            ASSERT_EQ(check_targets({.rank = 2, .alpha = 2, .targets = {target}}, {module}).ok(),
                      answers_to(module, target))
                << module << " " << target;
        }
}

TEST(AdapterTest, AnAdapterHasTwoFactorsOfEachLinearThatItCovers) {
    const auto all = tensors_on({.rank = 2, .alpha = 2, .targets = {"all-linear"}}, kModel);
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(names_of(*all),
              (std::vector<std::string>{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                                        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
                                        "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight",
                                        "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"}));
    EXPECT_EQ((*all)[0].shape, (std::vector<std::int64_t>{2, 8}));
    EXPECT_EQ((*all)[1].shape, (std::vector<std::int64_t>{6, 2}));
    EXPECT_EQ(tensors_on({.rank = 2, .alpha = 2, .targets = {"lm_head", "up_proj"}}, kModel).value().size(), 4U);
    const auto unknown = tensors_on({.rank = 2, .alpha = 2, .targets = {"embed_tokens"}}, kModel);
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().field, "--lora-targets");
    EXPECT_NE(unknown.error().message.find("q_proj, up_proj, lm_head"), std::string::npos) << unknown.error().message;
}

TEST(AdapterTest, WhatIsWrittenOfAnAdapterIsRead) {
    const LoraOptions options{4, 8, 0.25, {"q_proj", "up_proj"}};
    const auto read = parse_config(json::parse(config_text(options, "llama")).value());
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(differing_key(options, *read), "");
    EXPECT_EQ(read->dropout, 0.25);
    LoraOptions other = options;
    other.rank = 2;
    EXPECT_EQ(differing_key(options, other), "r");
    other = options;
    other.alpha = 4;
    EXPECT_EQ(differing_key(options, other), "lora_alpha");
    other = options;
    other.targets = {"all-linear"};
    EXPECT_EQ(differing_key(options, other), "target_modules");
}

TEST(AdapterTest, WhatOnlyPeftSaysOfAnAdapterIsReadAndWrittenAgain) {
    const json::Json config = {{"peft_type", "LORA"},
                               {"r", 4},
                               {"lora_alpha", 6},
                               {"use_rslora", true},
                               {"target_modules", {"q_proj", "up_proj", "unknown"}},
                               {"layers_to_transform", {2, 0}},
                               {"layers_pattern", "layers"},
                               {"rank_pattern", {{"up_proj", 16}}},
                               {"alpha_pattern", {{"layers.0.mlp.up_proj", 8}}}};
    const auto options = parse_config(config);
    ASSERT_TRUE(options.ok()) << options.error().message;
    EXPECT_TRUE(options->covers("model.layers.0.self_attn.q_proj"));
    EXPECT_FALSE(options->covers("model.layers.1.self_attn.q_proj"));
    EXPECT_EQ(options->rank_of("model.layers.0.self_attn.q_proj"), 4);
    EXPECT_EQ(options->scale_of("model.layers.0.self_attn.q_proj"), 3.0F) << "6 / √4";
    EXPECT_EQ(options->scale_of("model.layers.0.mlp.up_proj"), 2.0F) << "8 / √16";
    const auto tensors = tensors_on(*options, kModel);
    ASSERT_TRUE(tensors.ok()) << tensors.error().message;
    ASSERT_EQ(tensors->size(), 4U);
    EXPECT_EQ((*tensors)[2].shape, (std::vector<std::int64_t>{16, 8})) << "up_proj's A";
    const auto again = parse_config(json::parse(config_text(*options, "llama")).value());
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(differing_key(*options, *again), "");
    for (const auto& [key, value] : std::vector<std::pair<std::string, json::Json>>{{"use_rslora", false},
                                                                                    {"target_modules", ".*_proj"},
                                                                                    {"layers_to_transform", 2},
                                                                                    {"layers_pattern", "h"},
                                                                                    {"rank_pattern", {{"up", 16}}},
                                                                                    {"alpha_pattern", nullptr}}) {
        json::Json other = config;
        other[key] = value;
        if (key == "target_modules") other.erase("layers_to_transform"), other.erase("layers_pattern");
        const auto read = parse_config(other);
        ASSERT_TRUE(read.ok()) << read.error().message;
        EXPECT_EQ(differing_key(*options, *read), key);
    }
}

TEST(AdapterTest, WhatCannotBeToldOfAFileIsRefusedByItsKey) {
    const auto fault = [](const json::Json& change) {
        json::Json config = {{"peft_type", "LORA"}, {"target_modules", {"q_proj", "up_proj"}}};
        config.update(change);
        const auto options = parse_config(config);
        if (!options.ok()) return options.error().field;
        const auto tensors = tensors_on(*options, kModel);
        return tensors.ok() ? std::string() : tensors.error().field;
    };
    EXPECT_EQ(fault(json::Json::object()), "");
    EXPECT_EQ(fault({{"target_modules", "(?<=x)q_proj"}}), "target_modules");
    EXPECT_EQ(fault({{"target_modules", ".*experts.*"}}), "target_modules") << "names no linear";
    EXPECT_EQ(fault({{"target_modules", {"qkv"}}}), "target_modules");
    EXPECT_EQ(fault({{"layers_to_transform", {7}}}), "target_modules");
    EXPECT_EQ(fault({{"layers_to_transform", -1}}), "layers_to_transform");
    EXPECT_EQ(fault({{"layers_to_transform", "0"}}), "layers_to_transform");
    EXPECT_EQ(fault({{"layers_to_transform", {0}}, {"target_modules", "all-linear"}}), "layers_to_transform");
    EXPECT_EQ(fault({{"layers_pattern", "layers"}}), "layers_pattern") << "without layers_to_transform";
    EXPECT_EQ(fault({{"layers_pattern", "la.*"}, {"layers_to_transform", {0}}}), "layers_pattern");
    EXPECT_EQ(fault({{"rank_pattern", {{"q_proj", 0}}}}), "rank_pattern");
    EXPECT_EQ(fault({{"rank_pattern", {{"q_proj", 1.5}}}}), "rank_pattern");
    EXPECT_EQ(fault({{"rank_pattern", {{"(q", 2}}}}), "rank_pattern");
    EXPECT_EQ(fault({{"alpha_pattern", {{"q_proj", "2"}}}}), "alpha_pattern");
    EXPECT_EQ(fault({{"alpha_pattern", {{"q_proj", 2}, {".*q_proj", 3}}}}), "alpha_pattern") << "which one counts?";
    EXPECT_EQ(fault({{"alpha_pattern", {{"q_proj", 2}, {".*q_proj", 2}}}}), "");
}

// Of long names, and of many.
TEST(AdapterTest, PatternsThatTakeTooLongWithAModelsNamesAreRefused) {
    const auto options_of = [](const json::Json& change) {
        json::Json config = {{"peft_type", "LORA"}, {"target_modules", ".*"}};
        config.update(change);
        return parse_config(config).value();
    };
    const auto model = [](int count, const std::string& name) {
        std::vector<model_config::TensorSpec> tensors;
        for (int i = 0; i < count; ++i)
            tensors.push_back({"model.layers." + std::to_string(i) + name + ".weight", {1, 1}});
        return tensors;
    };
    std::string any = "(a";
    for (int i = 0; i < 190; ++i) any += "|a";
    const LoraOptions costly = options_of({{"target_modules", "model.layers.*(" + any + "))*"}});
    EXPECT_TRUE(tensors_on(costly, model(1, ".aaaa")).ok());
    const auto refused = tensors_on(costly, model(20, "." + std::string(900, 'a')));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().field, "target_modules");
    json::Json ranks = json::Json::object();  // as peft writes them of a large model
    for (int i = 0; i < 560; ++i) ranks["model.layers." + std::to_string(i) + ".mlp.up_proj"] = 4;
    EXPECT_TRUE(tensors_on(options_of({{"rank_pattern", ranks}}), model(560, ".mlp.up_proj")).ok());
}

// Each linear of a model is asked for each pattern, while a request waits.
TEST(AdapterTest, AFileOfMorePatternsThanCanBeMatchedIsRefused) {
    const auto fault = [](const json::Json& change) {
        json::Json config = {{"peft_type", "LORA"}, {"target_modules", {"q_proj"}}, {"layers_to_transform", {0}}};
        config.update(change);
        const auto options = parse_config(config);
        return options.ok() ? std::string() : options.error().field;
    };
    const auto values = [](int count, const std::string& pattern) {
        json::Json object = json::Json::object();
        for (int i = 0; i < count; ++i) object[pattern + std::to_string(i)] = 4;
        return object;
    };
    const std::string plain = "model.layers.100.self_attn.q_proj", costly = "(a*b)*";
    EXPECT_EQ(fault({{"rank_pattern", values(1000, plain)}, {"alpha_pattern", values(1000, plain)}}), "");
    EXPECT_EQ(fault({{"rank_pattern", values(1001, "q")}}), "rank_pattern");
    EXPECT_EQ(fault({{"alpha_pattern", values(1001, "q")}}), "alpha_pattern");
    EXPECT_EQ(fault({{"rank_pattern", values(4, costly)}}), "");
    EXPECT_EQ(fault({{"rank_pattern", values(20, costly)}}), "rank_pattern");
    EXPECT_EQ(fault({{"rank_pattern", values(4, costly)}, {"alpha_pattern", values(4, costly)}}), "alpha_pattern");
    EXPECT_EQ(fault({{"layers_pattern", std::vector<std::string>(1000, "layers")}}), "");
    EXPECT_EQ(fault({{"layers_pattern", std::vector<std::string>(1001, "layers")}}), "layers_pattern");
}

// make_peft_goldens.py asked peft of each module which rank and scale it has, if it has an adapter.
TEST(AdapterTest, LinearsTheirRanksAndScalesAreThoseOfPeft) {
    const auto text = read_file(std::filesystem::path(ATOLL_GOLDEN_DIR) / "peft" / "configs.json");
    ASSERT_TRUE(text.ok());
    const auto golden = json::Json::parse(*text);
    std::size_t read = 0;
    for (const auto& one : golden["configs"]) {
        const auto options = parse_config(one["config"]);
        if (!options.ok()) {
            ADD_FAILURE() << one["config"] << options.error().field << options.error().message;
            continue;
        }
        ++read;
        for (std::size_t i = 0; i < golden["modules"].size(); ++i) {
            const auto module = golden["modules"][i].get<std::string>();
            const auto& expected = one["linears"][i];
            ASSERT_EQ(options->covers(module), expected.is_array()) << one["config"] << module;
            if (!expected.is_array()) continue;
            EXPECT_EQ(options->rank_of(module), expected[0]) << one["config"] << module;
            EXPECT_FLOAT_EQ(options->scale_of(module), expected[1].get<float>()) << one["config"] << module;
        }
    }
    EXPECT_GT(read, 290U);
}

std::string read_in_parts(const InitialAdapter& made, std::size_t part) {
    std::string bytes(made.size(), '\0');
    for (std::size_t at = 0; at < bytes.size(); at += part)
        made.read(at, std::as_writable_bytes(std::span(bytes)).subspan(at, std::min(part, bytes.size() - at)));
    return bytes;
}

TEST(InitialAdapterTest, ItChangesNothingAndIsTheSameHoweverItIsRead) {
    const auto tensors = tensors_on({.rank = 4, .alpha = 4, .targets = {"q_proj"}}, kModel).value();
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const InitialAdapter made(tensors, dtype, 7);
        const std::string bytes = read_in_parts(made, 1 << 20);
        EXPECT_EQ(read_in_parts(made, 8), bytes);
        EXPECT_NE(read_in_parts(InitialAdapter(tensors, dtype, 8), 1 << 20), bytes) << "another seed";
        const std::uint64_t length = safetensors::header_length(bytes.substr(0, 8), bytes.size()).value();
        const auto header = safetensors::parse_header(bytes.substr(8, length), bytes.size());
        ASSERT_TRUE(header.ok()) << header.error().message;
        const auto* b = header->find(tensors[1].name);
        ASSERT_NE(b, nullptr);
        EXPECT_EQ(bytes.substr(header->data_begin + b->begin, b->end - b->begin), std::string(b->end - b->begin, '\0'));
    }
}

TEST(InitialAdapterTest, ValuesOfAFillTheRangeThatPeftDrawsThemFrom) {
    const InitialAdapter made({{"base_model.model.w.lora_A.weight", {64, 16}}}, DType::kF32, 1);
    const std::string bytes = read_in_parts(made, 1 << 20);
    double least = 1, most = -1, sum = 0, squares = 0;
    for (std::size_t i = 0; i < 1024; ++i) {
        float value = 0;
        std::memcpy(&value, bytes.data() + bytes.size() - 4096 + 4 * i, 4);
        least = std::min<double>(least, value);
        most = std::max<double>(most, value);
        sum += value;
        squares += double{value} * value;
    }
    EXPECT_LT(most, 0.25);  // 1 / √16
    EXPECT_GT(least, -0.25);
    EXPECT_GT(most - least, 0.48);
    EXPECT_NEAR(sum / 1024, 0, 0.02);
    EXPECT_NEAR(squares / 1024, 0.0625 / 3, 0.003);
}

}  // namespace
}  // namespace atl::adapter
