#include "services/dispatch/domain/job_spec.h"

#include <gtest/gtest.h>

#include "services/dispatch/domain/preparation_spec.h"

namespace atl::dispatch {
namespace {

using json::Json;

Json valid_job() {
    return Json::parse(R"({
        "name": "fortunes",
        "model": {"name": "tiny", "version": "base"},
        "participants": [
            {"facility": "leonardo", "dataset": "fortunes-it", "ranks": 2, "training": {"lr": 0.01}},
            {"facility": "karolina", "dataset": "fortunes-cs", "dataset_version": 3}],
        "rounds": 12,
        "strategy": {"name": "fedavg", "weighting": "uniform"},
        "training": {"steps": 20, "batch_size": 16, "lr": 0.001, "schedule": "cosine", "deterministic": true}})");
}

// A list of "evaluation.at" on one dataset.
Json sites(const std::vector<std::string>& facilities) {
    Json list = Json::array();
    for (const auto& facility : facilities) list.push_back({{"facility", facility}, {"dataset", "text"}});
    return list;
}

struct Wrong {
    const char* pointer;
    Json value;
    const char* field;
};

TEST(JobSpecTest, DefaultsAreFilledInAndStoredSpecsComeBack) {
    const auto spec = parse_job_spec(valid_job());
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->output_model, "fortunes");
    EXPECT_EQ(spec->attempts_max, 3);
    EXPECT_EQ(spec->updates_needed(), 2);
    ASSERT_EQ(spec->evaluation_copies.size(), 2U) << "by default every participant evaluates";
    EXPECT_EQ(spec->evaluation_copies[1].version, 3);
    Json stored = to_json(*spec);
    stored["participants"][0].update({{"path", "datasets/it/1"}, {"rows", 100}, {"seq_len", 128}});
    EXPECT_EQ(to_json(*parse_job_spec(stored, JobSource::kDatabase)), stored);
}

TEST(JobSpecTest, RanksAreAnotherWordForTasksOfOneNode) {
    Json value = valid_job();
    EXPECT_EQ(parse_job_spec(value)->participants[0].resources, Resources{.tasks_per_node = 2});
    EXPECT_EQ(parse_job_spec(value)->participants[1].resources, Resources());
    value["participants"][0]["resources"] = {{"queue", "gpu"}};
    EXPECT_EQ(parse_job_spec(value)->participants[0].resources, (Resources{.queue = "gpu", .tasks_per_node = 2}));
    value["participants"][0]["resources"] = {{"nodes", 2}, {"tasks_per_node", 2}};
    EXPECT_EQ(parse_job_spec(value).error().field, "participants[0].ranks");
    value["participants"][0].erase("ranks");
    value["participants"][0]["training"] = {{"global_batch_size", 6}};
    EXPECT_EQ(parse_job_spec(value).error().field, "participants[0].training.global_batch_size") << "of four ranks";
    value["participants"][0]["training"] = {{"lr", 0.1}};
    EXPECT_EQ(parse_job_spec(value)->participants[0].resources.ranks(), 4);
}

TEST(JobSpecTest, TheServerOptimizerHasThePapersDefaults) {
    Json value = valid_job();
    EXPECT_FALSE(parse_job_spec(value)->strategy.server_optimizer.has_value());
    value["strategy"]["outer"] = {{"momentum", 0.6}};
    const auto spec = parse_job_spec(value);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(to_json(spec->strategy)["outer"], (Json{{"optimizer", "nesterov"}, {"lr", 0.7}, {"momentum", 0.6}}));
    EXPECT_EQ(to_json(*parse_job_spec(to_json(*spec), JobSource::kDatabase)), to_json(*spec));
}

TEST(JobSpecTest, AShareThatSharesCannotStayBelowIsRefusedWithTheLeast) {
    Json value = valid_job();
    value["strategy"]["max_share"] = 0.2;
    const Error error = parse_job_spec(value).error();
    EXPECT_EQ(error.field, "strategy.max_share");
    EXPECT_EQ(error.message, "must be at least 0.5: the shares of the participants (2) sum to 1");
    value["strategy"]["max_share"] = 0.5;
    EXPECT_TRUE(parse_job_spec(value).ok());
    value["participants"].push_back({{"facility", "lumi"}, {"dataset", "fortunes-fi"}});
    value["strategy"]["max_share"] = 0.33;
    EXPECT_TRUE(parse_job_spec(value).ok()) << "a third as people write it";
    value["strategy"]["max_share"] = 0.3;
    EXPECT_EQ(parse_job_spec(value).error().message,
              "must be at least 0.334: the shares of the participants (3) sum to 1");
    Json stored = to_json(*parse_job_spec(valid_job()));
    stored["strategy"]["max_share"] = 0.2;
    EXPECT_TRUE(parse_job_spec(stored, JobSource::kDatabase).ok()) << "those of before go on";
}

TEST(JobSpecTest, AProductIsOfAdaptersThatAllTrain) {
    Json value = valid_job();
    value["strategy"] = {{"name", "product"}};
    const auto refusal = [&] {
        const auto spec = parse_job_spec(value);
        return spec.ok() ? std::string() : spec.error().field + ": " + spec.error().message;
    };
    EXPECT_EQ(refusal(), "strategy.name: product takes LoRA adapters: give training.lora_rank, or choose fedavg");
    value["training"]["lora_rank"] = 16;
    EXPECT_EQ(refusal(), "");
    value["training"]["lora_freeze_a"] = "on";
    EXPECT_EQ(refusal(), "strategy.name: with lora_freeze_a all adapters have one A, and fedavg is exact: choose that");
    value["training"].erase("lora_freeze_a");
    value["training"]["lora_rank"] = 400;
    EXPECT_NE(refusal().find("sum to 1200"), std::string::npos) << refusal();
}

TEST(JobSpecTest, RowWeightsAreOfModelsWithAnEmbedding) {
    Json value = valid_job();
    value["strategy"]["row_weights"] = "tokens";
    const auto spec = parse_job_spec(value);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_TRUE(spec->strategy.weighs_rows);
    value["training"]["lora_rank"] = 16;
    EXPECT_EQ(parse_job_spec(value).error().field, "strategy.row_weights");
    value["training"].erase("lora_rank");
    value["training"]["token_counts"] = true;
    EXPECT_EQ(parse_job_spec(value).error().field, "training.token_counts");
}

TEST(JobSpecTest, ControlVariatesAreOfWholeModelsOfSeveralSites) {
    Json value = valid_job();
    value["strategy"]["control_variate"] = 0.7;
    const auto spec = parse_job_spec(value);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->strategy.control_variate, 0.7);
    EXPECT_EQ(to_json(*spec)["strategy"]["control_variate"], 0.7);
    const auto refusal = [&](const Json& changes) {
        Json changed = value;
        changed.merge_patch(changes);
        return describe(parse_job_spec(changed).error());
    };
    EXPECT_NE(refusal({{"training", {{"lora_rank", 16}}}}).find("strategy.control_variate: needs the gradients of"),
              std::string::npos);
    EXPECT_NE(refusal({{"training", {{"proximal_mu", 0.1}}}})
                  .find("strategy.control_variate: cannot be combined with proximal_mu"),
              std::string::npos);
    EXPECT_NE(refusal({{"participants", {value["participants"][0]}}})
                  .find("strategy.control_variate: needs at least two participants"),
              std::string::npos);
    EXPECT_NE(refusal({{"evaluation", {{"models", "all"}}}}).find("evaluation.models: \"all\" would give each site"),
              std::string::npos);
    EXPECT_EQ(refusal({{"training", {{"control_variate", 0.5}}}}),
              "training.control_variate: is set by dispatch: give strategy.control_variate");
    value["participants"][1]["training"] = {{"proximal_mu", 0.1}};
    EXPECT_EQ(parse_job_spec(value).error().field, "strategy.control_variate");
}

TEST(JobSpecTest, UpdatesThatAreChangesAreNotEvaluatedAsModels) {
    Json value = valid_job();
    value["training"]["update_format"] = "int4";
    EXPECT_TRUE(parse_job_spec(value).ok()) << parse_job_spec(value).error().message;
    value["evaluation"] = {{"models", "all"}};
    EXPECT_EQ(parse_job_spec(value).error().field, "evaluation.models");
    value["training"]["update_format"] = "model";
    EXPECT_TRUE(parse_job_spec(value).ok());
    value["participants"][0]["training"]["update_format"] = "int8";
    EXPECT_EQ(parse_job_spec(value).error().field, "evaluation.models");
}

TEST(JobSpecTest, EachWrongMemberIsNamed) {
    const std::vector<Wrong> wrongs = {
        {"/name", 7, "name"},
        {"/name", "Not a name", "name"},
        {"/name", "newest", "name"},
        {"/output_model", "newest", "output_model"},
        {"/colour", "blue", "colour"},
        {"/model", "tiny", "model"},
        {"/model/version", nullptr, "model.version"},
        {"/model/tag", "x", "model.tag"},
        {"/output_model", "UPPER", "output_model"},
        {"/participants", Json::array(), "participants"},
        {"/participants/0/facility", 1, "participants[0].facility"},
        {"/participants/1/facility", "leonardo", "participants[1].facility"},
        {"/participants/1/gpus", 4, "participants[1].gpus"},
        {"/participants/1/ranks", 0, "participants[1].ranks"},
        {"/participants/0/resources", Json{{"nodes", 3}}, "participants[0].ranks"},
        {"/participants/0/resources", Json{{"time", "soon"}}, "participants[0].resources.time"},
        {"/participants/0/resources", Json{{"gpus", 4}}, "participants[0].resources.gpus"},
        {"/participants/1/dataset_version", "new", "participants[1].dataset_version"},
        {"/participants/0/training/learning_rate", 1, "participants[0].training.learning_rate"},
        {"/rounds", 0, "rounds"},
        {"/rounds", "12", "rounds"},
        {"/strategy/name", "fedbest", "strategy.name"},
        {"/strategy/weighting", "size", "strategy.weighting"},
        {"/strategy/outer", 0.7, "strategy.outer"},
        {"/strategy/outer", Json{{"optimizer", "yogi"}}, "strategy.outer.optimizer"},
        {"/strategy/outer", Json{{"lr", 0}}, "strategy.outer.lr"},
        {"/strategy/outer", Json{{"momentum", 1}}, "strategy.outer.momentum"},
        {"/strategy/outer", Json{{"beta", 0.9}}, "strategy.outer.beta"},
        {"/training", 1, "training"},
        {"/training/steps", "twenty", "training.steps"},
        {"/training/steps", 1.5, "training.steps"},
        {"/training/lr", -1, "training.lr"},
        {"/training/schedule", "staircase", "training.schedule"},
        {"/training/deterministic", "yes", "training.deterministic"},
        {"/training/model", "/etc", "training.model"},
        {"/evaluation", Json{{"models", "some"}}, "evaluation.models"},
        {"/evaluation", Json{{"val_samples", -64}}, "evaluation.val_samples"},
        {"/evaluation", Json{{"val_samples", 65}}, "evaluation.val_samples"},
        {"/evaluation", Json{{"at", {{{"facility", "x"}}}}}, "evaluation.at[0].dataset"},
        {"/evaluation", Json{{"at", sites({"x", "y", "x"})}}, "evaluation.at[2].dataset"},
        {"/evaluation", Json{{"at", sites(std::vector<std::string>(kParticipantsMax + 1, "x"))}}, "evaluation.at"},
        {"/lr_round_schedule", "staircase", "lr_round_schedule"},
        {"/attempts_max", 0, "attempts_max"},
        {"/quorum", 3, "quorum"},
        {"/round_deadline_s", -5, "round_deadline_s"},
    };
    for (const auto& wrong : wrongs) {
        Json value = valid_job();
        value[Json::json_pointer(wrong.pointer)] = wrong.value;
        const auto spec = parse_job_spec(value);
        ASSERT_FALSE(spec.ok()) << wrong.pointer << " = " << wrong.value;
        EXPECT_EQ(spec.error().field, wrong.field) << spec.error().message;
        EXPECT_FALSE(spec.error().message.starts_with(std::string(wrong.field) + ":")) << spec.error().message;
        EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    }
}

TEST(JobSpecTest, APathComesFromTheDatabaseAlone) {
    Json stored = to_json(*parse_job_spec(valid_job()));
    stored["participants"][0]["path"] = "datasets/fortunes-it/1";
    EXPECT_EQ(parse_job_spec(stored, JobSource::kDatabase)->participants[0].data.path, "datasets/fortunes-it/1");
    const auto asked = parse_job_spec(stored);
    ASSERT_FALSE(asked.ok());
    EXPECT_TRUE(asked.error().field.starts_with("participants[0].")) << asked.error().field;
}

TEST(JobSpecTest, ADamagedStoredSpecIsAnError) {
    const Json stored = to_json(*parse_job_spec(valid_job()));
    const Json flat = stored.flatten();
    for (const auto& item : flat.items()) {
        Json damaged = stored;
        damaged[Json::json_pointer(item.key())] = Json::array({7});
        EXPECT_FALSE(parse_job_spec(damaged, JobSource::kDatabase).ok()) << item.key();
    }
    EXPECT_FALSE(parse_job_spec("text", JobSource::kDatabase).ok());
    EXPECT_FALSE(parse_job_spec(nullptr, JobSource::kDatabase).ok());
}

TEST(JobSpecTest, OnlyARateThatTheJobNamesCanFallOverTheRounds) {
    Json value = valid_job();
    value["lr_round_schedule"] = "linear";
    const auto spec = parse_job_spec(value);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(parse_job_spec(to_json(*spec), JobSource::kDatabase)->lr_round_schedule, RoundSchedule::kLinear);
    value["training"].erase("lr");
    EXPECT_EQ(parse_job_spec(value).error().field, "training.lr")
        << "one participant names its own, the other does not";
    for (const char* schedule : {"constant", "by_step"}) {
        value["lr_round_schedule"] = schedule;
        EXPECT_TRUE(parse_job_spec(value).ok()) << schedule;
    }
    value["training"]["schedule_run"] = 2;
    EXPECT_EQ(parse_job_spec(value).error().field, "training.schedule_run") << "dispatch's to say";
}

TEST(JobSpecTest, AWarmUpMayBeLongerThanARoundWhereItGoesOverAll) {
    Json value = valid_job();
    value["rounds"] = 4;
    value["training"].update({{"steps", 10}, {"warmup_steps", 25}});
    for (Json& one : value["participants"]) one.erase("training");
    EXPECT_EQ(parse_job_spec(value).error().field, "training.warmup_steps");
    value["lr_round_schedule"] = "by_step";
    EXPECT_TRUE(parse_job_spec(value).ok());
    value["training"]["warmup_steps"] = 41;
    EXPECT_EQ(parse_job_spec(value).error().field, "training.warmup_steps");
}

TEST(JobSpecTest, ARoundIsNotWaitedForForEver) {
    Json value = valid_job();
    value.erase("round_deadline_s");
    EXPECT_EQ(parse_job_spec(value)->round_deadline_s, 7 * 24 * 3600);
    value["round_deadline_s"] = 60;
    EXPECT_EQ(parse_job_spec(value)->round_deadline_s, 60);
    EXPECT_EQ(parse_job_spec(to_json(*parse_job_spec(value)), JobSource::kDatabase)->round_deadline_s, 60);
}

TEST(JobSpecTest, TooManyParticipantsOrEvaluationsAreRefusedWithTheLimit) {
    Json value = valid_job();
    const auto participants = [](std::size_t count) {
        Json list = Json::array();
        for (std::size_t i = 0; i < count; ++i)
            list.push_back({{"facility", "site-" + std::to_string(i)}, {"dataset", "text"}});
        return list;
    };
    value["participants"] = participants(kParticipantsMax);
    value.erase("evaluation");
    EXPECT_TRUE(parse_job_spec(value).ok());
    const auto refusal = [&] {
        const auto parsed = parse_job_spec(value);
        return parsed.ok() ? "none" : describe(parsed.error());
    };
    value["evaluation"] = {{"models", "all"}};
    EXPECT_EQ(refusal(),
              "evaluation.at: a round has at most 20000 evaluations; of \"all\" its 1001 models it takes 19 places, "
              "these are 1000");
    value["evaluation"]["at"] = participants(19);
    EXPECT_EQ(refusal(), "none");
    value["evaluation"]["at"] = participants(20);
    EXPECT_NE(refusal(), "none");
    value["evaluation"] = {{"at", participants(kParticipantsMax)}};
    EXPECT_EQ(refusal(), "none") << "of the global model alone";
    value["participants"] = participants(kParticipantsMax + 1);
    EXPECT_TRUE(refusal().starts_with("participants: a job has at most 1000,")) << refusal();
}

TEST(JobSpecTest, AVersionIsADigestItsBeginningOrAName) {
    Json job = valid_job();
    Json preparation = {{"facility", "leonardo"},
                        {"dataset", "fortunes-it"},
                        {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                        {"input", "raw/it.jsonl"},
                        {"seq_len", 128}};
    const auto field = [](const auto& parsed) { return parsed.ok() ? std::string() : parsed.error().field; };
    for (const std::string& version : {std::string("base"), std::string("newest"), std::string("round3"),
                                       std::string("3F6C0a11"), std::string(64, 'a')}) {
        job["model"]["version"] = preparation["tokenizer"]["version"] = version;
        EXPECT_EQ(field(parse_job_spec(job)), "") << version;
        EXPECT_EQ(field(parse_preparation_spec(preparation)), "") << version;
    }
    for (const std::string& version :
         {std::string(), std::string("../../../blobs/") + std::string(64, 'a'), std::string(".."), std::string("a%2Fb"),
          std::string("a?b"), std::string(65, 'a'), std::string(2000, 'x')}) {
        job["model"]["version"] = preparation["tokenizer"]["version"] = version;
        EXPECT_EQ(field(parse_job_spec(job)), "model.version") << version;
        EXPECT_EQ(field(parse_preparation_spec(preparation)), "tokenizer.version") << version;
    }
}

TEST(PreparationSpecTest, APathThatClimbsOutIsRefused) {
    Json value = {{"facility", "leonardo"},
                  {"dataset", "fortunes-it"},
                  {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                  {"input", "raw/../../secret"},
                  {"seq_len", 128}};
    EXPECT_EQ(parse_preparation_spec(value).error().field, "input");
    value["input"] = "raw/it.jsonl";
    ASSERT_TRUE(parse_preparation_spec(value).ok()) << parse_preparation_spec(value).error().message;
    EXPECT_EQ(parse_preparation_spec(value)->batching, "packing");
    for (const char* input : {"", ",", "raw/it.jsonl,../secret", "raw/it.jsonl,/etc/../secret", ".", "/",
                              "raw/.*/.*/secret", "raw/.[.]/secret", "raw/.?", "raw/a, raw/b", " raw/a", "raw/a\t"}) {
        value["input"] = input;
        EXPECT_EQ(parse_preparation_spec(value).error().field, "input") << input;
    }
    EXPECT_TRUE(describe(parse_preparation_spec(value).error()).starts_with("input: has \"raw/a\\x09\", "))
        << describe(parse_preparation_spec(value).error());
    value["input"] = "./raw/,raw//x,/data/./y/";
    EXPECT_EQ(parse_preparation_spec(value)->input, "raw,raw/x,/data/y") << "as a shell's completion leaves them";
    value["input_format"] = "lines";
    EXPECT_EQ(to_json(*parse_preparation_spec(value)).at("input_format"), "lines");
    value["input_format"] = "parquet";
    EXPECT_EQ(describe(parse_preparation_spec(value).error()),
              "input_format: must be one of auto, jsonl, json, csv, tsv, text, lines");
    value["input_format"] = "auto";
    EXPECT_FALSE(to_json(*parse_preparation_spec(value)).contains("input_format"));
    value["input"] = "raw/it-*.csv,/data/texts";
    EXPECT_EQ(input_paths(parse_preparation_spec(value)->input),
              (std::vector<std::string>{"raw/it-*.csv", "/data/texts"}));
}

TEST(PreparationSpecTest, ValidationIsAPartOfTheInputOrHasFilesOfItsOwn) {
    Json value = {{"facility", "leonardo"},
                  {"dataset", "fortunes-it"},
                  {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                  {"input", "it.jsonl"},
                  {"seq_len", 128}};
    EXPECT_EQ(parse_preparation_spec(value)->validation_percent, 5);
    EXPECT_FALSE(to_json(*parse_preparation_spec(value)).contains("validation_input"));
    value["validation_input"] = "dev.jsonl";
    EXPECT_EQ(to_json(*parse_preparation_spec(value)).at("validation_input"), "dev.jsonl");
    EXPECT_EQ(parse_preparation_spec(value)->validation_percent, 0);
    value["validation_percent"] = nullptr;
    EXPECT_TRUE(parse_preparation_spec(value).ok());
    for (const Json& percent : {Json(5), Json(0), Json("five")}) {
        value["validation_percent"] = percent;
        EXPECT_EQ(parse_preparation_spec(value).error().field, "validation_percent") << percent;
    }
    value.erase("validation_percent");
    for (const char* input : {"", "it.jsonl", "it.jsonl/part", "dev.jsonl,it.jsonl"}) {
        value["validation_input"] = input;
        EXPECT_EQ(parse_preparation_spec(value).error().field, "validation_input") << input;
    }
    value["validation_input"] = "../secret";
    EXPECT_EQ(parse_preparation_spec(value).error().field, "validation_input");
    value["input"] = "/data/texts,raw";
    for (const char* input : {"/data/texts/a/b.jsonl", "raw/dev.jsonl", "dev,raw"}) {
        value["validation_input"] = input;
        EXPECT_EQ(parse_preparation_spec(value).error().field, "validation_input") << input;
    }
    for (const char* input : {"/data/text", "/data", "rawer/dev.jsonl", "dev/raw"}) {
        value["validation_input"] = input;
        EXPECT_TRUE(parse_preparation_spec(value).ok()) << input;
    }
}

TEST(PreparationSpecTest, SoManyPathsAreTakenAsACommandCanHave) {
    Json value = {{"facility", "leonardo"},
                  {"dataset", "fortunes-it"},
                  {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                  {"input", "x"},
                  {"seq_len", 128}};
    std::string paths = "0";
    for (int i = 1; i < 1000; ++i) paths += "," + std::to_string(i);
    for (const char* key : {"validation_input", "input"}) {
        value[key] = paths;
        EXPECT_TRUE(parse_preparation_spec(value).ok()) << key;
        value[key] = paths + ",1000";
        EXPECT_EQ(parse_preparation_spec(value).error().field, key);
        value["validation_input"] = "y";
    }
}

}  // namespace
}  // namespace atl::dispatch
