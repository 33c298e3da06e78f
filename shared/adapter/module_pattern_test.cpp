#include "shared/adapter/module_pattern.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"

namespace atl::adapter {
namespace {

bool matches(const std::string& pattern, const std::string& module) {
    const auto parsed = ModulePattern::parse(pattern);
    EXPECT_TRUE(parsed.ok()) << pattern << ": " << parsed.error().message;
    return parsed.ok() && parsed->matches(module);
}

TEST(ModulePatternTest, TheWholeNameMustMatch) {
    EXPECT_TRUE(matches("q_proj", "q_proj"));
    EXPECT_FALSE(matches("q_proj", "layers.q_proj"));
    EXPECT_TRUE(matches(R"(.*\.(q|v)_proj)", "model.layers.0.self_attn.v_proj"));
    EXPECT_FALSE(matches(R"(.*\.(q|v)_proj)", "model.layers.0.self_attn.v_proj.x"));
    EXPECT_TRUE(matches(R"(model\.layers\.(1\d|2[0-3])\.mlp\.(up|down)_proj)", "model.layers.23.mlp.up_proj"));
    EXPECT_FALSE(matches(R"(model\.layers\.(1\d|2[0-3])\.mlp\.(up|down)_proj)", "model.layers.24.mlp.up_proj"));
    EXPECT_TRUE(matches(R"(^(?!.*vision).*o_proj$)", "model.layers.0.self_attn.o_proj"));
    EXPECT_FALSE(matches(R"(^(?!.*vision).*o_proj$)", "vision.layers.0.self_attn.o_proj"));
    EXPECT_TRUE(matches(R"((?:(?:[a-z_]+|\d{1,3})\.)*up_proj)", "model.layers.17.mlp.up_proj"));
    EXPECT_FALSE(matches(R"((a?){3})", "aaaa"));
    EXPECT_TRUE(matches(R"((a?){3})", "a"));
    EXPECT_TRUE(matches(R"((a|b*){2,}c)", "bbabc"));
}

TEST(ModulePatternTest, APrefixIsEnoughWhereItIsAskedFor) {
    const auto pattern = ModulePattern::parse("lay", ModulePattern::Extent::kPrefix);
    ASSERT_TRUE(pattern.ok());
    EXPECT_TRUE(pattern->matches("layers"));
    EXPECT_FALSE(pattern->matches("a.layers"));
}

TEST(ModulePatternTest, WhatIsNotSupportedOrNoPatternIsSaid) {
    const std::vector<std::pair<const char*, const char*>> cases = {{"(?<=a)b", "look-behind"},
                                                                    {R"((a)\1)", R"('\1')"},
                                                                    {"(?P<n>a)(?P=n)", "reference"},
                                                                    {"(?i)a", "(?i"},
                                                                    {"a++", "possessive"},
                                                                    {"(?>a)", "(?>"},
                                                                    {R"(\x41)", R"('\x')"},
                                                                    {"é", "ASCII"},
                                                                    {"a**", "repeats a repetition"},
                                                                    {"*a", "nothing to repeat"},
                                                                    {"a|{2}", "nothing to repeat"},
                                                                    {"^*", "repeats a place"},
                                                                    {"a{3,2}", "least is more"},
                                                                    {"(a", "not closed"},
                                                                    {"a)", "too many"},
                                                                    {"[a", "not closed"},
                                                                    {"[z-a]", "range"},
                                                                    {R"([\d-z])", "range"},
                                                                    {"a\\", "ends in"}};
    for (const auto& [pattern, why] : cases) {
        const auto parsed = ModulePattern::parse(pattern);
        ASSERT_FALSE(parsed.ok()) << pattern;
        EXPECT_NE(parsed.error().message.find(why), std::string::npos) << parsed.error().message;
    }
}

// Backtracking would take for ever.
TEST(ModulePatternTest, APatternThatWouldTakeForEverIsMatchedOrRefused) {
    EXPECT_FALSE(matches("(a*)*b", std::string(500, 'a')));
    EXPECT_FALSE(matches("(a|a)*b", std::string(500, 'a')));
    for (const std::string& pattern :
         {std::string("(((a*)*)*)*b"), std::string("((((a{0,99}){0,99}){0,99}){0,99}){0,99}"), std::string(5000, 'a'),
          std::string(40, '(') + "a" + std::string(40, ')')})
        EXPECT_FALSE(ModulePattern::parse(pattern).ok()) << pattern;
    EXPECT_FALSE(matches("a*", std::string(2000, 'a'))) << "no module's name";
}

TEST(ModulePatternTest, TheLastPartsBetweenDotsAreEnoughWhereTheyAreAskedFor) {
    const auto pattern = ModulePattern::parse("mlp.up|down", ModulePattern::Extent::kLastParts);
    ASSERT_TRUE(pattern.ok());
    for (const char* name : {"mlp.up", "layers.0.mlp.up", "layers.0.mlp_up", "down", "x.down"})
        EXPECT_TRUE(pattern->matches(name)) << name;
    for (const char* name : {"xmlp.up", "mlp.up.x", "updown", "up", "a\nb.down", ""})
        EXPECT_FALSE(pattern->matches(name)) << name;
}

TEST(ModulePatternTest, APatternTellsHowLongItTakes) {
    const auto cost = [](const std::string& text) { return ModulePattern::parse(text).value().cost(); };
    EXPECT_LT(cost("layers.0.mlp.up_proj"), 30);
    EXPECT_GT(cost("(a*)*b"), 10000);
}

// make_peft_goldens.py asked Python's re and peft: of each pattern, which names match whole, and as a key of
// rank_pattern.
TEST(ModulePatternTest, AnswersAreThoseOfPythonsRe) {
    const auto text = read_file(std::filesystem::path(ATOLL_GOLDEN_DIR) / "peft" / "patterns.json");
    ASSERT_TRUE(text.ok());
    const auto golden = nlohmann::json::parse(*text);
    std::size_t parsed_count = 0;
    for (const auto& one : golden["patterns"]) {
        const auto pattern = one["pattern"].get<std::string>();
        const auto whole = ModulePattern::parse(pattern);
        const auto as_key = ModulePattern::parse(pattern, ModulePattern::Extent::kLastParts);
        EXPECT_EQ(whole.ok(), one["supported"]) << pattern;
        if (!whole.ok() || !as_key.ok()) continue;
        ++parsed_count;
        for (std::size_t i = 0; i < golden["names"].size(); ++i) {
            const auto name = golden["names"][i].get<std::string>();
            EXPECT_EQ(whole->matches(name), one["whole"].get<std::string>()[i] == '1') << pattern << " " << name;
            EXPECT_EQ(as_key->matches(name), one["key"].get<std::string>()[i] == '1') << pattern << " " << name;
        }
    }
    EXPECT_GT(parsed_count, 300U);
}

}  // namespace
}  // namespace atl::adapter
