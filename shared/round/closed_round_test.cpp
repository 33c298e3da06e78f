#include "shared/round/closed_round.h"

#include <gtest/gtest.h>

#include "shared/json/json.h"

namespace atl::round {
namespace {

using json::Json;

std::string digest_of_letter(char letter) {
    return std::string(64, letter);
}

Json update(const std::string& facility, char version, std::int64_t tokens) {
    return {{"facility", facility},
            {"task", "task-" + facility},
            {"version", digest_of_letter(version)},
            {"samples", 10},
            {"tokens", tokens}};
}

Json closed_round() {
    return {{"job", "j1"},
            {"round", 2},
            {"model", "demo"},
            {"base", digest_of_letter('0')},
            {"strategy", {{"name", "fedavg"}, {"weighting", "tokens"}}},
            {"updates", {update("leonardo", 'a', 300), update("karolina", 'b', 100)}}};
}

std::string field_of_error(const Json& data) {
    const auto round = parse_closed_round(data);
    return round.ok() ? "none" : round.error().field;
}

TEST(ClosedRoundTest, UpdatesAreOrderedByFacilityHoweverTheyCame) {
    Json reversed = closed_round();
    std::swap(reversed["updates"][0], reversed["updates"][1]);
    const auto first = parse_closed_round(closed_round());
    const auto second = parse_closed_round(reversed);
    ASSERT_TRUE(first.ok()) << first.error().message;
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(first->updates[0].facility, "karolina");
    EXPECT_EQ(to_json(first->updates), to_json(second->updates));
}

TEST(ClosedRoundTest, WithoutAQuorumEveryUpdateIsNeeded) {
    Json data = closed_round();
    EXPECT_EQ(parse_closed_round(data)->quorum, 2U);
    data["quorum"] = 1;
    EXPECT_EQ(parse_closed_round(data)->quorum, 1U);
    data["quorum"] = 0;
    EXPECT_EQ(field_of_error(data), "quorum");
}

TEST(ClosedRoundTest, WhatIsLeftOutIsNoLongerAmongTheUpdates) {
    ClosedRound round = parse_closed_round(closed_round()).value();
    const Json refused = to_json(std::vector{RefusedUpdate{round.updates[0], "NaN"}});
    ASSERT_TRUE(leave_out(round, refused).ok());
    ASSERT_EQ(round.updates.size(), 1U);
    EXPECT_EQ(round.updates[0].facility, "leonardo");
    EXPECT_EQ(to_json(round.refused), refused);
    EXPECT_EQ(averaging_weights(round).updates, std::vector<double>{300});
}

TEST(ClosedRoundTest, ADamagedListOfWhatIsLeftOutIsAnError) {
    ClosedRound round = parse_closed_round(closed_round()).value();
    for (const Json& damaged : {Json("text"), Json{7}, Json{{{"task", 7}, {"reason", "NaN"}}},
                                Json{{{"task", round.updates[0].task}}}, Json{nullptr}})
        EXPECT_FALSE(leave_out(round, damaged).ok()) << damaged;
    EXPECT_EQ(round.updates.size(), 2U);
}

TEST(ClosedRoundTest, WhatIsWrongIsNamed) {
    EXPECT_EQ(field_of_error(closed_round()), "none");
    Json data = closed_round();
    data["updates"][1].erase("tokens");
    EXPECT_EQ(field_of_error(data), "updates[1].tokens");
    data = closed_round();
    data["updates"] = Json::array();
    EXPECT_EQ(field_of_error(data), "updates");
    data = closed_round();
    data["strategy"]["name"] = "krum";
    EXPECT_EQ(field_of_error(data), "strategy.name");
    data = closed_round();
    data["strategy"]["server_lr"] = 0.7;
    EXPECT_EQ(field_of_error(data), "strategy.server_lr") << "a setting is never ignored";
    data = closed_round();
    data["strategy"]["outer"] = {{"optimizer", "yogi"}};
    EXPECT_EQ(field_of_error(data), "strategy.outer.optimizer");
    data["strategy"]["outer"] = {{"lr", -1}};
    EXPECT_EQ(field_of_error(data), "strategy.outer.lr");
    data = closed_round();
    data["name"] = "demo";
    EXPECT_EQ(field_of_error(data), "none") << "a newer sender may say more";
    data = closed_round();
    data["base"] = "latest";
    EXPECT_EQ(field_of_error(data), "base");
    data = closed_round();
    data["updates"][1]["task"] = data["updates"][0]["task"];
    EXPECT_EQ(field_of_error(data), "updates[1].task");
    EXPECT_FALSE(parse_closed_round(data).error().message.starts_with("updates[1].task"))
        << "the field stands beside it";
}

TEST(ClosedRoundTest, WeightsFollowTheStrategy) {
    Json data = closed_round();
    EXPECT_EQ(averaging_weights(*parse_closed_round(data)).updates, (std::vector<double>{100, 300}));
    data["strategy"]["weighting"] = "uniform";
    EXPECT_EQ(averaging_weights(*parse_closed_round(data)).updates, (std::vector<double>{1, 1}));
    data = closed_round();
    for (Json& update : data["updates"]) update["tokens"] = 0;
    EXPECT_EQ(averaging_weights(*parse_closed_round(data)).updates, (std::vector<double>{1, 1}))
        << "sites that claim nothing end no round";
}

// What the round before kept, of which one update was refused.
Json rows_before() {
    const auto update = [](const char* facility, int tokens) {
        return Json{{"facility", facility},
                    {"task", std::string("task-") + facility + std::to_string(tokens)},
                    {"version", std::string(64, 'c')},
                    {"samples", 1},
                    {"tokens", tokens},
                    {"assigned", {{"tokens", 100}}}};
    };
    return Json::array({{{"updates", {update("lumi", 40), update("away", 70)}},
                         {"refused", {{{"task", "task-away70"}, {"reason", "NaN"}}}}},
                        {{"updates", {update("lumi", 30), update("away", 60)}}, {"refused", Json::array()}}});
}

TEST(ClosedRoundTest, WhoIsMissingHasTheWeightOfItsLastUpdate) {
    Json data = closed_round();
    data["missing"] = {"lumi", "away", "never"};
    ClosedRound round = parse_closed_round(data).value();
    take_absent(round, rows_before());
    ASSERT_EQ(round.absent.size(), 2U);
    EXPECT_EQ(averaging_weights(round).absent, (std::vector<double>{40, 60})) << "what was refused was none";
    EXPECT_EQ(averaging_weights(round).updates, (std::vector<double>{100, 300}));
    EXPECT_EQ(round.absent[0].assigned.tokens, 100);
    round.strategy.weighs_by_tokens = false;
    EXPECT_EQ(averaging_weights(round).absent, (std::vector<double>{1, 1}));
    round = parse_closed_round(closed_round()).value();
    take_absent(round, rows_before());
    EXPECT_TRUE(round.absent.empty()) << "dispatch says who is missing";
    data["missing"] = {7};
    EXPECT_EQ(field_of_error(data), "missing");
}

TEST(ClosedRoundTest, WhoIsAbsentIsBelievedNoMoreThanTheOthers) {
    Json data = closed_round();
    for (Json& update : data["updates"]) update["assigned"] = {{"tokens", 1000}};
    data["missing"] = {"lumi"};
    ClosedRound round = parse_closed_round(data).value();
    Json rows = rows_before();
    rows[0]["updates"][0]["tokens"] = 1'000'000;
    take_absent(round, rows);
    // The lower median of 0.1, 0.3 and 10,000 a token that was assigned.
    EXPECT_NEAR(averaging_weights(round).absent.at(0), 30, 1e-9);
    EXPECT_NEAR(averaging_weights(round).updates.at(1), 300, 1e-9);
}

TEST(ClosedRoundTest, AClaimWeighsNoMoreThanTheUsualOneOfItsAssignment) {
    Json data = closed_round();
    for (Json& update : data["updates"]) update["assigned"] = {{"tokens", 1000}};
    EXPECT_EQ(averaging_weights(*parse_closed_round(data)).updates, (std::vector<double>{100, 100}));
    data["updates"][0]["assigned"]["tokens"] = 2000;
    data["updates"][1]["assigned"]["tokens"] = 2000;
    data["strategy"]["max_share"] = 0.7;
    EXPECT_EQ(averaging_weights(*parse_closed_round(data)).updates, (std::vector<double>{100, 300}))
        << "who says how much one may weigh believes it";
}

TEST(ClosedRoundTest, WhatWasAssignedIsDispatchsWord) {
    Json data = closed_round();
    data["updates"][0]["assigned"] = {{"effort", 0.5},       {"claimed", 2},  {"tokens", 64},
                                      {"element_max", 0.25}, {"norm_max", 3}, {"decay", 0.125}};
    const ClosedRound round = parse_closed_round(data).value();
    const auto first = data["updates"][0]["facility"].get<std::string>();
    const auto& said = round.updates[0].facility == first ? round.updates[0] : round.updates[1];
    const auto& unsaid = &said == &round.updates[0] ? round.updates[1] : round.updates[0];
    EXPECT_EQ(said.assigned.effort, 0.5);
    EXPECT_EQ(said.assigned.claimed, 2);
    EXPECT_EQ(said.assigned.tokens, 64);
    EXPECT_EQ(said.assigned.norm_max, 3);
    EXPECT_EQ(said.assigned.element_max, 0.25);
    EXPECT_EQ(said.assigned.decay, 0.125);
    EXPECT_EQ(unsaid.assigned.effort, 1);
    EXPECT_EQ(to_json(parse_closed_round({{"job", "j"},
                                          {"round", 1},
                                          {"model", "m"},
                                          {"base", data["base"]},
                                          {"strategy", data["strategy"]},
                                          {"updates", to_json(round.updates)}})
                          ->updates),
              to_json(round.updates));
}

TEST(ClosedRoundTest, EarlierRoundsSayWhatWasCountedOfWhom) {
    ClosedRound round = parse_closed_round(closed_round()).value();
    const std::string version = digest_of_letter('c');
    Json update = {{"facility", "leonardo"}, {"task", "t"}, {"version", version},
                   {"samples", 1},           {"tokens", 1}, {"assigned", {{"effort", 2}}}};
    Json other = update;
    other["facility"] = "gone";
    take_earlier(round, {{{"updates", {update, other}},
                          {"contributions",
                           {{{"facility", "leonardo"}, {"version", version}, {"norm", 8}, {"counted", 0.5}},
                            {{"facility", "gone"}, {"version", version}, {"norm", 3}},
                            {{"facility", "nobody"}, {"version", version}, {"norm", 3}},
                            {{"facility", 7}}}}},
                         Json::object()});
    ASSERT_EQ(round.earlier.size(), 2U);
    EXPECT_EQ(round.earlier[0].norm, 4);
    EXPECT_EQ(round.earlier[0].effort, 2);
    EXPECT_EQ(round.earlier[0].update, 1U);
    EXPECT_EQ(round.earlier[1].norm, 3);
    EXPECT_FALSE(round.earlier[1].update);
}

TEST(ClosedRoundTest, ContributionsSaySharesAndNormsWhereThereAreSome) {
    const ClosedRound round = parse_closed_round(closed_round()).value();
    const Json without = contributions(round, {.shares = {0.25, 0.75}});
    EXPECT_EQ(without[1], (Json{{"facility", "leonardo"},
                                {"version", digest_of_letter('a')},
                                {"weight", 0.75},
                                {"samples", 10},
                                {"tokens", 300}}));
    const Json measured = contributions(round, {.shares = {0.25, 0.75}, .figures = {{3, {}, 1}, {4, -0.5, 0.25}}});
    EXPECT_EQ(measured[1]["norm"], 4.0);
    EXPECT_EQ(measured[1]["cosine"], -0.5);
    EXPECT_EQ(measured[1]["counted"], 0.25);
    EXPECT_FALSE(measured[0].contains("cosine"));
    EXPECT_FALSE(measured[0].contains("control_variate_norm"));
    const aggregate::UpdateFigures varied{3, {}, 1, aggregate::ControlVariateFigures{0.5, 0.25}};
    const Json with_variates = contributions(round, {.shares = {0.25, 0.75}, .figures = {varied, varied}});
    EXPECT_EQ(with_variates[1]["control_variate_norm"], 0.5);
    EXPECT_EQ(with_variates[1]["control_variate_counted"], 0.25);
}

TEST(ClosedRoundTest, StatisticsOfPartsAreAddedExactly) {
    std::vector<aggregate::ExactSum> first(2), second(2), sums(2);
    first[0].add(1);
    first[0].add(1e100);
    second[0].add(-1e100);
    for (const auto& part : {first, second}) ASSERT_TRUE(add_statistics(sums, Json::parse(to_json(part).dump())).ok());
    EXPECT_EQ(sums[0].value(), 1);
    EXPECT_EQ(sums[1].value(), 0);
    for (const char* damaged : {"null", "[[1]]", "[[1], [\"x\"]]", "[1, 2]"})
        EXPECT_FALSE(add_statistics(sums, Json::parse(damaged)).ok()) << damaged;
}

TEST(ClosedRoundTest, TheServerOptimizerIsWhatTheStrategySays) {
    Json data = closed_round();
    EXPECT_FALSE(parse_closed_round(data)->strategy.server_optimizer.has_value());
    data["strategy"]["outer"] = {{"lr", 0.5}};
    const auto outer = parse_closed_round(data)->strategy.server_optimizer;
    ASSERT_TRUE(outer.has_value());
    EXPECT_EQ(outer->learning_rate, 0.5);
    EXPECT_EQ(outer->beta1, 0.9);
}

TEST(PartsTest, TheOptimizersStateIsPutTogetherApart) {
    std::vector<Part> parts = cut_into_parts({{"a.safetensors", 12}, {"momentum/a.safetensors", 20}}, 10);
    for (Part& part : parts) part.sha256 = digest_of_letter('a');
    const store_client::Manifest base{{{"a.safetensors", 12, {{digest_of_letter('8'), 12}}}}};
    const auto model = assemble(base, parts);
    ASSERT_EQ(model.files.size(), 1U);
    EXPECT_EQ(model.files[0].size, 12U);
    const auto state = assemble_optimizer_state(base, parts);
    ASSERT_EQ(state.files.size(), 1U);
    EXPECT_EQ(state.files[0].path, "momentum/a.safetensors");
    EXPECT_EQ(state.files[0].size, 20U);
    parts.resize(2);
    EXPECT_TRUE(assemble_optimizer_state(base, parts).files.empty());
}

TEST(PartsTest, TheMeanOfTheControlVariatesIsOfTheVersionAndTheBasesGoes) {
    std::vector<Part> parts = cut_into_parts(
        {{"a.safetensors", 12}, {"momentum/a.safetensors", 20}, {"control_variate/a.safetensors", 15}}, 10);
    for (Part& part : parts) part.sha256 = digest_of_letter('a');
    const store_client::ManifestFile weights{"a.safetensors", 12, {{digest_of_letter('8'), 12}}};
    const store_client::ManifestFile variate{"control_variate/a.safetensors", 15, {{digest_of_letter('9'), 15}}};
    for (const store_client::Manifest& base : {store_client::Manifest{{weights}}, {{weights, variate}}}) {
        const auto model = assemble(base, parts);
        ASSERT_EQ(model.files.size(), 2U);
        EXPECT_EQ(model.files[1].path, "control_variate/a.safetensors");
        EXPECT_EQ(model.files[1].chunks.size(), 2U);
        EXPECT_EQ(model.files[1].chunks[0].sha256, digest_of_letter('a'));
        const auto state = assemble_optimizer_state(base, parts);
        ASSERT_EQ(state.files.size(), 1U);
        EXPECT_EQ(state.files[0].path, "momentum/a.safetensors");
        const auto plain = assemble(base, {parts[0], parts[1]});
        ASSERT_EQ(plain.files.size(), 1U) << "of a strategy without any";
    }
}

TEST(PartsTest, FilesAreCutWithoutGapsAndPutTogetherAgain) {
    std::vector<Part> parts = cut_into_parts({{"b.safetensors", 25}, {"c.safetensors", 10}}, 10);
    ASSERT_EQ(parts.size(), 4U);
    EXPECT_EQ(parts[2].begin, 20U);
    EXPECT_EQ(parts[2].size, 5U);
    char letter = 'a';
    for (Part& part : parts) part.sha256 = digest_of_letter(letter++);

    const store_client::Manifest base{{{"a.json", 3, {{digest_of_letter('9'), 3}}},
                                       {"b.safetensors", 25, {{digest_of_letter('8'), 25}}},
                                       {"c.safetensors", 10, {{digest_of_letter('8'), 10}}},
                                       {"model.safetensors.index.json", 5, {{digest_of_letter('6'), 5}}},
                                       {"z.json", 4, {{digest_of_letter('7'), 4}}}}};
    const auto manifest = assemble(base, parts);
    ASSERT_EQ(manifest.files.size(), 5U);
    EXPECT_EQ(manifest.files[0].chunks[0].sha256, digest_of_letter('9'));
    EXPECT_EQ(manifest.files[1].path, "b.safetensors");
    EXPECT_EQ(manifest.files[1].size, 25U);
    EXPECT_EQ(manifest.files[1].chunks.size(), 3U);
    EXPECT_EQ(manifest.files[2].chunks[0].sha256, digest_of_letter('d'));
    EXPECT_EQ(manifest.files[3].chunks[0].sha256, digest_of_letter('6')) << "the base's index";
    EXPECT_EQ(manifest.files[4].path, "z.json");
    EXPECT_EQ(manifest.files[4].chunks[0].sha256, digest_of_letter('7')) << "the base's";
    EXPECT_TRUE(store_client::parse_manifest(store_client::to_json(manifest)).ok());
}

// As the service shows them: what a round took is found in those before it.
TEST(RebuildRoundTest, ARoundIsWhatItsAggregationTook) {
    Json first = closed_round(), second = closed_round(), third = closed_round();
    first.update(
        {{"round", 1}, {"state", "completed"}, {"version", digest_of_letter('1')}, {"refused", Json::array()}});
    first["optimizer_state"] = digest_of_letter('e');
    first["contributions"] = {
        {{"facility", "karolina"}, {"version", digest_of_letter('b')}, {"norm", 4}, {"counted", 0.5}}};
    second.update({{"state", "failed"}, {"version", nullptr}, {"contributions", Json::array()}});
    third.update({{"round", 3}, {"base", digest_of_letter('1')}, {"state", "completed"}, {"missing", {"lumi"}}});
    third["updates"].push_back(update("marconi", 'c', 50));
    third["refused"] = {{{"task", "task-marconi"}, {"reason", "it holds NaN"}, {"fault", "site"}}};
    first["updates"].push_back(update("lumi", 'd', 70));
    const Json shown = {third, first, second};

    const ClosedRound round = rebuild_round(shown, 3).value();
    ASSERT_EQ(round.updates.size(), 2U);
    EXPECT_EQ(round.refused.at(0).update.facility, "marconi");
    EXPECT_TRUE(round.base_is_jobs);
    EXPECT_EQ(round.optimizer_state, digest_of_letter('e'));
    ASSERT_EQ(round.earlier.size(), 1U) << "a failed round counted nothing";
    EXPECT_EQ(round.earlier.at(0).norm, 2);
    EXPECT_EQ(round.earlier.at(0).update, 0U) << "karolina comes first";
    ASSERT_EQ(round.absent.size(), 1U);
    EXPECT_EQ(round.absent.at(0).tokens, 70);
    EXPECT_FALSE(rebuild_round(shown, 1)->base_is_jobs);
    EXPECT_TRUE(rebuild_round(shown, 1)->earlier.empty());

    const ClosedRound without = rebuild_round(shown, 3, {"karolina"}).value();
    ASSERT_EQ(without.updates.size(), 1U);
    EXPECT_EQ(without.earlier.at(0).update, std::nullopt);
    EXPECT_EQ(rebuild_round(shown, 3, {"marconi"}).error().code, ErrorCode::kNotFound) << "it was refused";
    EXPECT_EQ(rebuild_round(shown, 3, {"karolina", "leonardo"}).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(rebuild_round(shown, 4).error().code, ErrorCode::kNotFound);
}

TEST(PartsTest, WhereAModelDiffersIsSaid) {
    const auto file = [](const char* path, const std::string& letters) {
        store_client::ManifestFile made{path, letters.size(), {}};
        for (const char letter : letters) made.chunks.push_back({digest_of_letter(letter), 1});
        return made;
    };
    const store_client::Manifest model{{file("config.json", "c"), file("model.safetensors", "ab")}};
    EXPECT_EQ(first_difference(model, model), "");
    EXPECT_EQ(first_difference({{model.files[0], file("model.safetensors", "ad")}}, model),
              "model.safetensors differs in bytes 1 to 1");
    EXPECT_EQ(first_difference({{model.files[0], file("model.safetensors", "a")}}, model),
              "model.safetensors differs in bytes 1 to 1");
    EXPECT_EQ(first_difference({{model.files[0], file("model.safetensors", "abb")}}, model),
              "model.safetensors is longer");
    EXPECT_EQ(first_difference({{model.files[1]}}, model), "it has no config.json");
    EXPECT_EQ(first_difference({{model.files[0], model.files[1], file("z", "z")}}, model), "it has more files");
}

}  // namespace
}  // namespace atl::round
