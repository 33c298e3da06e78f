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

}  // namespace
}  // namespace atl::demo
