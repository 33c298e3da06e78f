// Logits against PyTorch's transformers, with the key/value cache, on every backend.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>

#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"

namespace atl::numerics {
namespace {

constexpr double kLogitTolerance = 1e-4;  // absolute

struct LogitCase {
    std::string family;
    std::string golden;
    std::string backend;
};

void PrintTo(const LogitCase& value, std::ostream* out) {
    *out << value.family << " " << value.golden << " on " << value.backend;
}

// Llama 2's layout (a key for each query), tied embeddings with grouped queries, Llama 3's rotary scaling; OPT's two;
// both with products of several tiles; the other families.
std::vector<LogitCase> logit_cases_on(const std::vector<std::string>& backends) {
    std::vector<LogitCase> cases;
    for (const std::string& backend : backends) {
        for (const char* golden : {"mha", "gqa_tied", "llama3_rope"}) cases.push_back({"llama", golden, backend});
        for (const char* golden : {"tied", "projected"}) cases.push_back({"opt", golden, backend});
        for (const char* family : {"llama", "opt"}) {
            if (has_tiles(backend)) cases.push_back({family, "tiles", backend});
        }
        for (const char* golden : {"mistral", "qwen2", "qwen3", "qwen3_biased", "yarn", "yarn_untruncated"})
            cases.push_back({"families", golden, backend});
    }
    return cases;
}

class LogitGoldenTest : public ::testing::TestWithParam<LogitCase> {
  protected:
    Golden golden_{GetParam().golden, GetParam().family};
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(GetParam().backend);
    std::unique_ptr<EngineModel> model_ = golden_.load(*backend_);

    // The largest distance from the golden logits of the first row, when its first `prompt` tokens come at once and
    // the others one by one: of each position from prompt − 1 on.
    double worst_logit(std::size_t prompt) {
        const auto rows = golden_.rows();
        const auto length = static_cast<std::size_t>(rows.shape.length);
        const auto wanted = golden_.floats("logits");
        auto ids = golden_.integers("logit_ids");  // of the logits that there are: all, if nothing is said
        if (ids.empty()) {
            ids.resize(static_cast<std::size_t>(golden_.config().vocab_size));
            std::iota(ids.begin(), ids.end(), 0);
        }
        std::vector<float> got(static_cast<std::size_t>(golden_.config().vocab_size));
        auto generation =
            model::Generation::start(model_->model(), *backend_, *model_, rows.shape.length, rows.shape.length).value();
        double worst = 0;
        for (std::size_t end = prompt; end <= length; ++end) {
            generation.step(end == prompt ? rows.input_ids.first(prompt) : rows.input_ids.subspan(end - 1, 1), got);
            for (std::size_t i = 0; i < ids.size(); ++i) {
                const float logit = got[static_cast<std::size_t>(ids[i])];
                const float distance = std::abs(logit - wanted[(end - 1) * ids.size() + i]);
                worst = worse(worst, static_cast<double>(distance));
            }
        }
        return worst;
    }
};

TEST_P(LogitGoldenTest, LogitsOfEveryPositionAreThoseOfTransformers) {
    const auto whole = static_cast<std::size_t>(golden_.rows().shape.length);
    for (const std::size_t prompt : {std::size_t{1}, std::size_t{7}, whole}) {
        EXPECT_LE(worst_logit(prompt), kLogitTolerance) << "a prompt of " << prompt;
    }
}

// A control: scores without their 1/√d must be far off.
class LogitControlTest : public LogitGoldenTest {};

TEST_P(LogitControlTest, ScoresThatAreNotScaledAreFarOff) {
    const float factor = std::sqrt(static_cast<float>(golden_.config().head_dim));
    const char* const query = golden_.config().architecture.head_norms ? "q_norm" : "q_proj";
    for (const std::string& name : golden_.names("gradient:")) {
        if (name.find(query) == std::string::npos) continue;
        std::vector<float> scaled = model_->weight(name);
        for (float& value : scaled) value *= factor;
        model_->set_weight(name, scaled);
    }
    EXPECT_GT(worst_logit(7), 100 * kLogitTolerance);
}

std::string logit_name_of(const ::testing::TestParamInfo<LogitCase>& instance) {
    return instance.param.family + "_" + instance.param.golden + "_" + instance.param.backend;
}

INSTANTIATE_TEST_SUITE_P(All, LogitGoldenTest, ::testing::ValuesIn(logit_cases_on(kernels::tested_backends())),
                         logit_name_of);
INSTANTIATE_TEST_SUITE_P(All, LogitControlTest, ::testing::ValuesIn(logit_cases_on(kernels::cpu_instruction_sets())),
                         logit_name_of);

}  // namespace
}  // namespace atl::numerics
