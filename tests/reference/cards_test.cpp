// Where GPUs are named beside their table.

#include "shared/training_memory/cards.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "shared/base/file.h"
#include "shared/json/json.h"
#include "shared/run_settings/run_settings.h"

namespace atl {
namespace {

std::string text_of(const char* file) {
    return read_file(std::filesystem::path(ATOLL_DOCS).parent_path() / file).value();
}

TEST(CardsReferenceTest, TheOptionNamesEachOne) {
    const auto* option = run_settings::find_option("card", run_settings::kPlan);
    ASSERT_NE(option, nullptr);
    EXPECT_TRUE(option->help.ends_with(": " + training_memory::card_names())) << option->help;
}

TEST(CardsReferenceTest, DispatchsDocumentTakesEachOne) {
    const json::Json document = json::Json::parse(text_of("services/dispatch/openapi.json"));
    json::Json names = json::Json::array();
    for (const auto& card : training_memory::cards()) names.push_back(std::string(card.name));
    EXPECT_EQ(document["components"]["schemas"]["Queue"]["properties"]["card"]["enum"], names);
}

TEST(CardsReferenceTest, TheTrainersPageHasEachOne) {
    const std::string page = text_of("trainer/README.md");
    for (const auto& card : training_memory::cards())
        EXPECT_NE(page.find("`" + std::string(card.name) + "`"), std::string::npos) << card.name;
}

}  // namespace
}  // namespace atl
