#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/http/client/client.h"
#include "shared/json/json.h"
#include "tests/e2e/demo/federation.h"

// What a demo has left that has just run: its report, and its stack, which still runs.
namespace atl::demo {
namespace {

using json::Json;

const std::filesystem::path kState = ATOLL_DEMO_STATE;

void expect_number_above(double minimum, const Json& object, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
        ASSERT_TRUE(object.contains(key)) << key << " is missing in " << object.dump();
        ASSERT_TRUE(object[key].is_number()) << key << ": " << object[key].dump();
        EXPECT_GT(object[key].get<double>(), minimum) << key;
    }
}

void expect_perplexities(const Json& object, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
        ASSERT_TRUE(object.contains(key)) << key << " is missing in " << object.dump();
        expect_number_above(1, object[key], {"it", "cs"});
    }
}

void expect_facility(const Json& facility, const std::string& name) {
    EXPECT_EQ(facility.value("name", ""), name);
    expect_number_above(0, facility, {"steps", "tokens", "loss", "tokens_per_s"});
    expect_perplexities(facility, {"solo"});
}

void expect_round(const Json& round, int number) {
    EXPECT_EQ(round.value("round", 0), number);
    EXPECT_TRUE(digest::is_sha256(round.value("model", ""))) << round.dump();
    expect_perplexities(round, {"global"});
    ASSERT_EQ(round.value("facilities", Json::array()).size(), 2U) << round.dump();
    expect_facility(round["facilities"][0], "leonardo");
    expect_facility(round["facilities"][1], "karolina");
}

TEST(DemoRunTest, TheReportHasWhatOtherToolsReadFromIt) {
    const auto text = read_file(kState / "report.json");
    ASSERT_TRUE(text.ok()) << text.error().message;
    const Json report = json::parse(*text).value();
    EXPECT_FALSE(report.value("job", "").empty());
    const std::vector<std::string> phases = {"text",       "stack", "base",   "prepare",
                                             "federation", "solo",  "pooled", "samples"};
    expect_number_above(-1, report.value("wall_s", Json()), phases);
    const Json rounds = report.value("rounds", Json::array());
    ASSERT_EQ(rounds.size(), 2U);
    for (int i = 0; i < 2; ++i) expect_round(rounds[static_cast<std::size_t>(i)], i + 1);
    expect_perplexities(report, {"pooled", "pooled_adamw"});
    for (const char* language : {"it", "cs"})
        EXPECT_FALSE(report.value("samples", Json::object()).value(language, "").empty()) << language;
}

TEST(DemoRunTest, TheRegistryHoldsTheTemplatesOfTheOriginalExperiment) {
    const auto stack = read_stack(kState / "stack");
    ASSERT_TRUE(stack.ok()) << stack.error().message;
    http::ClientOptions options;
    options.base_url = stack->gateway;
    options.token = stack->token;
    http::Client client(options);
    const auto template_of = [&](const std::string& dataset) {
        const auto found = client.get_json("/registry/v1/datasets/" + dataset);
        return found.ok() ? found->value("template", "") : found.error().message;
    };
    EXPECT_EQ(template_of("fortunes-it"), "scrivi un seguente documento:: {{text}}");
    EXPECT_EQ(template_of("fortunes-cs"), "Napište dokument:: {{text}}");
}

}  // namespace
}  // namespace atl::demo
