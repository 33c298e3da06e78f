// Logits and greedy generation with the key/value cache against transformers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/numerics/golden.h"

namespace atl::numerics {
namespace {

class GenerationGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GenerationGoldenTest, GreedyTokensAreThoseOfTransformers) {
    const Golden golden(GetParam());
    const auto backend = kernels::make_cpu_backend(1).value();
    model::ResidentModel resident = golden.load(*backend);
    const auto expected = golden.integers("tokens");
    ASSERT_FALSE(expected.empty());
    std::vector<std::int32_t> tokens;
    const model::GenerateOptions options{.tokens_max = static_cast<std::int64_t>(expected.size())};
    const auto status = model::generate(resident.model(), *backend, resident, golden.rows().input_ids.first(5), options,
                                        [&](std::int32_t token) { return tokens.push_back(token), true; });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(All, GenerationGoldenTest, ::testing::Values("mha", "gqa_tied", "dynamic_rope"));

// Whole prompts and one-token steps must give the same logits: each position of the golden batch is a prompt's end.
TEST(GenerationTest, LogitsOfEveryPositionAreThoseOfTransformers) {
    const Golden golden("llama3_rope");
    const auto backend = kernels::make_cpu_backend(2).value();
    model::ResidentModel resident = golden.load(*backend);
    const auto rows = golden.rows();
    const auto logits = golden.floats("logits");
    const auto vocabulary = static_cast<std::size_t>(golden.config().vocab_size);
    for (const std::size_t prompt : {std::size_t{1}, std::size_t{7}}) {
        model::Generation generation =
            model::Generation::start(resident.model(), *backend, resident, 16, rows.shape.length).value();
        std::vector<float> got(vocabulary);
        for (std::size_t end = prompt; end <= 16; ++end) {
            const auto tokens = end == prompt ? rows.input_ids.first(prompt) : rows.input_ids.subspan(end - 1, 1);
            generation.step(tokens, got);
            for (std::size_t id = 0; id < vocabulary; ++id) {
                ASSERT_NEAR(got[id], logits[(end - 1) * vocabulary + id], 1e-4) << "position " << end - 1;
            }
        }
    }
}

}  // namespace
}  // namespace atl::numerics
