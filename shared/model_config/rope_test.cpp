#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/model_config/model_config.h"

namespace atl::model_config {
namespace {

// make_rope_goldens.py asked transformers of made configurations.
TEST(RopeTest, FrequenciesAndAttentionsFactorAreThoseOfTransformers) {
    const auto text = read_file(std::filesystem::path(ATOLL_GOLDEN_DIR) / "rope" / "rope.json");
    ASSERT_TRUE(text.ok());
    std::size_t yarns = 0, refused = 0;
    for (const auto& one : nlohmann::json::parse(*text)) {
        const auto config = parse_config(one["config"].dump());
        if (one.contains("refused")) {
            ++refused;
            EXPECT_FALSE(config.ok()) << one["config"];
            continue;
        }
        if (!config.ok()) {
            ADD_FAILURE() << one["config"] << config.error().field << " " << config.error().message;
            continue;
        }
        const auto frequencies = config->rope_frequencies();
        ASSERT_EQ(frequencies.size(), one["inv_freq"].size());
        // transformers computes in fp32; a blend of two takes more from it than either.
        for (std::size_t i = 0; i < frequencies.size(); ++i)
            EXPECT_NEAR(frequencies[i] / one["inv_freq"][i].get<double>(), 1, 2e-5) << one["config"] << " pair " << i;
        EXPECT_NEAR(config->rope.attention_factor, one["attention_factor"].get<double>(), 1e-9) << one["config"];
        yarns += config->rope.kind == RopeKind::kYarn ? 1 : 0;
    }
    EXPECT_GT(yarns, 100U);
    EXPECT_EQ(refused, 4U);
}

}  // namespace
}  // namespace atl::model_config
