// Greedy generation with the key/value cache against transformers.

#include <gtest/gtest.h>

#include <ostream>

#include "tests/numerics/golden.h"

namespace atl::numerics {
namespace {

struct GenerationCase {
    std::string folder;
    std::string golden;
};

void PrintTo(const GenerationCase& value, std::ostream* out) {
    *out << value.folder << " " << value.golden;
}

class GenerationGoldenTest : public ::testing::TestWithParam<GenerationCase> {};

TEST_P(GenerationGoldenTest, GreedyTokensAreThoseOfTransformers) {
    const Golden golden(GetParam().golden, GetParam().folder);
    const auto backend = kernels::make_cpu_backend(1).value();
    model::ReferenceDriver resident = golden.load(*backend);
    const auto expected = golden.integers("tokens");
    ASSERT_FALSE(expected.empty());
    std::vector<std::int32_t> tokens;
    const model::GenerateOptions options{.tokens_max = static_cast<std::int64_t>(expected.size())};
    const auto status = model::generate(resident.model(), *backend, resident, golden.rows().input_ids.first(5), options,
                                        [&](std::int32_t token) { return tokens.push_back(token), true; });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(
    All, GenerationGoldenTest,
    ::testing::Values(GenerationCase{"llama", "mha"}, GenerationCase{"llama", "gqa_tied"},
                      GenerationCase{"llama", "dynamic_rope"}, GenerationCase{"families", "mistral"},
                      GenerationCase{"families", "mistral_window"}, GenerationCase{"families", "qwen2"},
                      GenerationCase{"families", "qwen3"}, GenerationCase{"families", "qwen3_biased"},
                      GenerationCase{"families", "yarn"}, GenerationCase{"families", "yarn_untruncated"},
                      GenerationCase{"families", "yarn_factor"}));

}  // namespace
}  // namespace atl::numerics
