#include "services/dispatch/domain/task_params.h"

#include <gtest/gtest.h>

#include <set>

#include "services/dispatch/domain/job_spec.h"

namespace atl::dispatch {
namespace {

using json::Json;

const Json kModel = {{"digest", "b"}, {"which", "base"}};

// One stored row of each kind.
const std::vector<std::pair<TaskKind, Json>> kStored = {
    {TaskKind::kTrain,
     {{"base", "b"},
      {"output_model", "m"},
      {"output_owner", "ada"},
      {"dataset", "d"},
      {"dataset_version", 3},
      {"path", "datasets/d/3"},
      {"rows", 100},
      {"seq_len", 128},
      {"fingerprint", "f"},
      {"resources", {{"nodes", 2}, {"tasks_per_node", 2}}},
      {"participant", 1},
      {"training", {{"steps", 5}}},
      {"state_round", 0}}},
    {TaskKind::kEvaluate,
     {{"dataset", "d"},
      {"path", "p"},
      {"models", {kModel, {{"digest", "u"}, {"which", "leonardo"}}}},
      {"tokens_max", 0},
      {"fingerprint", "f"}}},
    {TaskKind::kPrepare,
     {{"dataset", "d"},
      {"tokenizer_digest", "t"},
      {"tokenizer", {{"model", "m"}, {"version", "t"}}},
      {"template", "{{text}}"},
      {"input", "/raw/d.jsonl"},
      {"seq_len", 128},
      {"batching", "packing"},
      {"validation_percent", 5}}},
    {TaskKind::kPrepare,
     {{"dataset", "d"},
      {"tokenizer_digest", "t"},
      {"tokenizer", {{"model", "m"}, {"version", "t"}}},
      {"template", "{{text}}"},
      {"input", "/raw/d.jsonl"},
      {"seq_len", 128},
      {"batching", "packing"},
      {"validation_percent", 0},
      {"validation_input", "/raw/dev.jsonl"},
      {"input_format", "csv"}}},
    {TaskKind::kClean, Json::object()},
};

std::string field_of_fault(TaskKind kind, const Json& stored) {
    const auto params = parse_task_params(kind, stored);
    if (params.ok()) return "none";
    EXPECT_EQ(params.error().code, ErrorCode::kInvalidArgument);
    return params.error().field;
}

TEST(TaskParamsTest, EachKindComesBackAsItWasStored) {
    for (const auto& [kind, stored] : kStored) {
        const auto params = parse_task_params(kind, stored);
        ASSERT_TRUE(params.ok()) << describe(params.error());
        EXPECT_EQ(params->index(), static_cast<std::size_t>(kind));
        EXPECT_EQ(to_json(*params), stored);
        EXPECT_EQ(empty_task_params(kind).index(), params->index());
    }
}

TEST(TaskParamsTest, OfAdaptersTheModelIsKeptToo) {
    Json train = kStored[0].second, evaluate = kStored[1].second;
    train["model"] = evaluate["model"] = "m";
    evaluate["quantize"] = "nf4";
    evaluate["samples_max"] = 200;
    EXPECT_EQ(to_json(parse_task_params(TaskKind::kTrain, train).value()), train);
    EXPECT_EQ(to_json(parse_task_params(TaskKind::kEvaluate, evaluate).value()), evaluate);
}

TEST(TaskParamsTest, WhetherTokensAreCountedIsKeptWhereTheyAre) {
    Json train = kStored[0].second;
    train["counts_tokens"] = true;
    EXPECT_EQ(to_json(parse_task_params(TaskKind::kTrain, train).value()), train);
    train["counts_tokens"] = 1;
    EXPECT_EQ(field_of_fault(TaskKind::kTrain, train), "counts_tokens");
}

TEST(TaskParamsTest, AControlVariateIsKeptWhereThereIsOne) {
    Json train = kStored[0].second;
    train["control_variate"] = 0.7;
    EXPECT_EQ(to_json(parse_task_params(TaskKind::kTrain, train).value()), train);
    train["control_variate"] = 1.5;
    EXPECT_EQ(field_of_fault(TaskKind::kTrain, train), "control_variate");
}

// What tasks of earlier releases lack, or all but some.
const std::set<std::string> kOptional = {"fingerprint", "output_owner", "tokenizer", "validation_input",
                                         "input_format"};

TEST(TaskParamsTest, AMemberThatIsMissingUnknownOrOfAnotherTypeIsNamed) {
    for (const auto& [kind, stored] : kStored) {
        for (const auto& [key, value] : stored.items()) {
            Json damaged = stored;
            damaged.erase(key);
            EXPECT_EQ(field_of_fault(kind, damaged), kOptional.contains(key) ? "none" : key) << "missing " << key;
            damaged[key] = true;
            EXPECT_EQ(field_of_fault(kind, damaged), key) << "true";
        }
        Json more = stored;
        more["more"] = 1;
        EXPECT_EQ(field_of_fault(kind, more), "more");
        for (const Json& other : {Json(), Json(7), Json::array()}) EXPECT_NE(field_of_fault(kind, other), "none");
    }
}

TEST(TaskParamsTest, SizesAreBounded) {
    Json train = kStored[0].second;
    train["resources"]["nodes"] = 0;
    EXPECT_EQ(field_of_fault(TaskKind::kTrain, train), "resources.nodes");
    train["resources"]["nodes"] = 1;
    train["base"] = std::string(2 << 20, 'b');
    EXPECT_EQ(field_of_fault(TaskKind::kTrain, train), "base");
    Json evaluate = kStored[1].second;
    evaluate["models"] = Json(kParticipantsMax + 1, kModel);
    EXPECT_EQ(field_of_fault(TaskKind::kEvaluate, evaluate), "none");
    evaluate["models"].push_back(kModel);
    EXPECT_EQ(field_of_fault(TaskKind::kEvaluate, evaluate), "models");
    evaluate["models"] = {kModel, {{"digest", "u"}}};
    EXPECT_EQ(field_of_fault(TaskKind::kEvaluate, evaluate), "models[1].which");
}

}  // namespace
}  // namespace atl::dispatch
