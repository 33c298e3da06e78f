// Greedy generation with the key/value cache against transformers, on every backend.

#include <gtest/gtest.h>

#include <ostream>

#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"

namespace atl::numerics {
namespace {

struct GenerationCase {
    std::string folder;
    std::string golden;
    std::string backend;
};

void PrintTo(const GenerationCase& value, std::ostream* out) {
    *out << value.folder << " " << value.golden << " on " << value.backend;
}

std::vector<GenerationCase> generation_cases() {
    std::vector<GenerationCase> cases;
    for (const std::string& backend : kernels::tested_backends()) {
        for (const char* golden : {"mha", "gqa_tied", "dynamic_rope"}) cases.push_back({"llama", golden, backend});
        for (const char* golden :
             {"mistral", "mistral_window", "qwen2", "qwen3", "qwen3_biased", "yarn", "yarn_untruncated", "yarn_factor"})
            cases.push_back({"families", golden, backend});
        for (const char* golden : {"tied", "projected"}) cases.push_back({"opt", golden, backend});
    }
    return cases;
}

class GenerationGoldenTest : public ::testing::TestWithParam<GenerationCase> {};

TEST_P(GenerationGoldenTest, GreedyTokensAreThoseOfTransformers) {
    const Golden golden(GetParam().golden, GetParam().folder);
    const auto backend = kernels::make_tested_backend(GetParam().backend);
    const auto model = golden.load(*backend);
    const auto expected = golden.integers("tokens");
    ASSERT_FALSE(expected.empty());
    std::vector<std::int32_t> tokens;
    const model::GenerateOptions options{.tokens_max = static_cast<std::int64_t>(expected.size())};
    const auto status = model::generate(model->model(), *backend, *model, golden.rows().input_ids.first(5), options,
                                        [&](std::int32_t token) { return tokens.push_back(token), true; });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(All, GenerationGoldenTest, ::testing::ValuesIn(generation_cases()), [](const auto& instance) {
    return instance.param.folder + "_" + instance.param.golden + "_" + instance.param.backend;
});

}  // namespace
}  // namespace atl::numerics
