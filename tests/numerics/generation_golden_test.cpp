// Greedy generation with the key/value cache against transformers.

#include <gtest/gtest.h>

#include "tests/numerics/golden.h"

namespace atl::numerics {
namespace {

class GenerationGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GenerationGoldenTest, GreedyTokensAreThoseOfTransformers) {
    const Golden golden(GetParam());
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

INSTANTIATE_TEST_SUITE_P(All, GenerationGoldenTest, ::testing::Values("mha", "gqa_tied", "dynamic_rope"));

}  // namespace
}  // namespace atl::numerics
