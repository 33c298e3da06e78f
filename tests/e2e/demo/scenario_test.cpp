#include "tests/e2e/demo/scenario.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace atl::demo {
namespace {

TEST(ScenarioTest, EachDataSetIsRegisteredWithItsTemplateOfTheOriginalExperiment) {
    std::map<std::string, std::string> templates;
    for (const Site& site : sites()) {
        const json::Json dataset = registered_dataset(site);
        EXPECT_EQ(dataset.at("name"), site.dataset);
        templates[dataset.at("language").get<std::string>()] = dataset.at("template").get<std::string>();
    }
    const std::map<std::string, std::string> expected = {{"it", "scrivi un seguente documento:: {{text}}"},
                                                         {"cs", "Napište dokument:: {{text}}"}};
    EXPECT_EQ(templates, expected);
}

// bench/README.md, "Federations by recipe".
TEST(ScenarioTest, TheFederationHasTheRecipeOfTheBenchmark) {
    const json::Json training = federated_settings(30, 16);
    EXPECT_EQ(training.at("optimizer"), "muon");
    EXPECT_EQ(training.at("update_format"), "int4");
    EXPECT_EQ(training.at("keep_optimizer"), true);
    const json::Json two = strategy(2);
    EXPECT_EQ(two.at("row_weights"), "tokens");
    EXPECT_EQ(two.at("control_variate"), 0.7);
    EXPECT_EQ(two.at("outer").at("optimizer"), "nesterov");
    EXPECT_FALSE(strategy(1).contains("control_variate")) << "which is of several";
}

}  // namespace
}  // namespace atl::demo
