#include "services/dispatch/admission/job_examination.h"

#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "shared/prompt/tokenizer_reader.h"
#include "shared/training_memory/least_memory.h"

namespace atl::dispatch {
namespace {

using json::Json;

// A job of one participant with Slurm, and what is known of it.
struct Case {
    JobSpec spec;
    Facilities facilities;
    BaseModel base;
    NamedCopy copy;

    Case() {
        spec.model = "tiny";
        spec.model_version = "v1";
        spec.rounds = 10;
        spec.training = {{"steps", 3}, {"batch_size", 16}};
        spec.participants.emplace_back();
        DatasetCopy& data = spec.participants[0].data;
        data = {.facility = "leonardo",
                .dataset = "it",
                .version = 2,
                .path = "a",
                .rows = 100,
                .seq_len = 128,
                .validation_tokens = 900};
        StoredFacility& stored = facilities["leonardo"];
        stored.facility.name = "leonardo";
        stored.facility.batch.kind = BatchKind::kSlurm;
        stored.facility.batch.default_queue = "main";
        stored.facility.batch.queues["main"].found.memory_mib_max = 4000;
        stored.devices = {"cpu"};
        base.bytes = 1000;
        base.weight_bytes = 900;
        base.tokenizer = {{"vocabulary", {{"tokenizer.json", "x"}}}, {"settings", Json::object()}};
        base.config = model_config::parse_config(
            R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 4096,
                "num_hidden_layers": 8, "num_attention_heads": 16, "max_position_embeddings": 2048})");
        copy.path = "participants[0]";
        copy.fits = true;
        copy.prepared_with = "tiny@01234567";
        copy.tokenizer_reader = prompt::kTokenizerReader;
        copy.train_tokens = 12000;
    }
    Examination examine() {
        copy.data = &spec.participants[0].data;
        return examine_job(spec, facilities, base, {copy});
    }
    // "ok: what was seen", or "fail at FIELD: …"
    std::string found(const std::string& name) {
        for (const Finding& finding : examine().findings)
            if (finding.row.name == name)
                return to_json(finding).at("state").get<std::string>() +
                       (finding.field.empty() ? "" : " at " + finding.field) + ": " + finding.row.seen;
        return "none";
    }
};

TEST(JobExaminationTest, WhatIsInTheWayAtASiteIsAWarning) {
    Case one;
    EXPECT_EQ(one.found("site"), "none");
    one.facilities["leonardo"].waiting = Waiting{"squeue gave no answer within 8 s", 1, 2};
    EXPECT_EQ(one.found("site"), "warn: its tasks wait just now: squeue gave no answer within 8 s");
    EXPECT_TRUE(first_failure(one.examine()).ok()) << "it passes";
}

TEST(JobExaminationTest, ABaseThatNoJobStartsFromIsOneFindingOfAll) {
    Case one;
    one.base = BaseModel();
    one.base.refusal = invalid_argument("model.version", "is an adapter: set training.lora_rank to its rank, 8");
    one.copy.found = invalid_argument("participants[0].dataset", "there is none");
    EXPECT_EQ(one.found("model"), "fail at model.version: is an adapter: set training.lora_rank to its rank, 8");
    EXPECT_EQ(one.found("data"), "fail at participants[0].dataset: there is none");
    const Error first = first_failure(one.examine()).error();
    EXPECT_EQ(first.field, "model.version");
    EXPECT_TRUE(first.message.ends_with("(and 1 more: `atoll job submit --check` shows all)")) << first.message;
    one.copy.found = Status();
    EXPECT_EQ(one.found("tokenizer"), "skipped: not known");
}

TEST(JobExaminationTest, ABaseWithATensorThatNoUpdateWouldHaveIsRefused) {
    Case one;
    EXPECT_EQ(one.found("weights"), "none");
    one.base.ignored_tensor = "lm_head.weight";
    EXPECT_TRUE(one.found("weights").starts_with(
        "fail at model: tiny@v1: the model is computed without the tensor \"lm_head.weight\", so no update of it would "
        "have it; `atoll-trainer train --model DIRECTORY --steps 0"))
        << one.found("weights");
    EXPECT_EQ(first_failure(one.examine()).error().field, "model");
}

TEST(JobExaminationTest, AJobThatFitsHasNoFailure) {
    Case one;
    EXPECT_TRUE(first_failure(one.examine()).ok()) << first_failure(one.examine()).error().message;
    EXPECT_EQ(one.found("model"), "ok: tiny@v1: llama, 1000 B");
    EXPECT_EQ(one.found("resources"), "ok: 1 node, 1 rank, queue main");
    EXPECT_EQ(one.found("device"), "ok: cpu");
    EXPECT_EQ(one.found("data"), "ok: it version 2: 100 rows, 12000 tokens");
    EXPECT_EQ(one.found("tokenizer"), "ok: prepared with that of tiny@01234567");
    EXPECT_EQ(one.found("context"), "ok: rows of 128 tokens of at most 2048");
    EXPECT_EQ(one.found("settings"), "ok: 3 steps a round of 16 rows");
    EXPECT_EQ(one.found("batch"), "none");
    EXPECT_NE(one.found("memory").find("ok: a node needs "), std::string::npos) << one.found("memory");
}

TEST(JobExaminationTest, AJobThatWeighsRowsSaysThatUpdatesTellTheirTokens) {
    Case one;
    EXPECT_EQ(one.found("token_counts"), "none");
    one.spec.strategy.weighs_rows = true;
    EXPECT_EQ(one.found("token_counts"),
              "ok: each update says how often the rows of its training held each token, to whoever may read it");
}

TEST(JobExaminationTest, OfAFacilityWithoutQueuesTheMachinesMemoryCounts) {
    Case one;
    BatchSpec& batch = one.facilities["leonardo"].facility.batch;
    batch = BatchSpec();
    EXPECT_NE(one.found("memory").find("what it has is not known"), std::string::npos) << one.found("memory");
    batch.machine.found.memory_mib_max = 2000;
    EXPECT_NE(one.found("memory").find("fail at participants[0].resources: "), std::string::npos);
    batch.machine.found.memory_mib_max = 64000;
    EXPECT_NE(one.found("memory").find("ok: a node needs "), std::string::npos) << one.found("memory");
    one.spec.participants[0].resources.memory_mib = 1;
    EXPECT_NE(one.found("resources").find("fail at participants[0].resources.memory: "), std::string::npos);
    EXPECT_NE(one.found("memory").find(" of 62.5 GiB"), std::string::npos) << one.found("memory");
}

TEST(JobExaminationTest, AQueueThatTheFacilitysLastCheckDidNotFindIsRefused) {
    Case one;
    one.facilities["leonardo"].limits = {{"gpu", Json::object()}};
    EXPECT_EQ(
        one.found("resources"),
        "fail at participants[0].resources.queue: at the last check of facility \"leonardo\" its batch system had "
        "no partition for the queue main (`atoll facility check leonardo` looks again)");
    one.facilities["leonardo"].limits["main"] = Json::object();
    EXPECT_EQ(one.found("resources"), "ok: 1 node, 1 rank, queue main");
}

TEST(JobExaminationTest, AQueueThatStartedNoJobsWhenItWasLookedAtIsAWarning) {
    Case one;
    QueueLimits& found = one.facilities["leonardo"].facility.batch.queues["main"].found;
    found.nodes = 4;
    found.nodes_away = {{"drained", 3}};
    found.found_at = "2026-03-01T12:00:00Z";
    EXPECT_EQ(one.found("queue"), "none") << "one node is there";
    found.nodes_away["down"] = 1;
    EXPECT_EQ(
        one.found("queue"),
        "warn: main, as seen at 2026-03-01T12:00:00Z: 4 of its 4 nodes take no jobs now: 1 down, 3 drained (`atoll "
        "facility check leonardo` looks again)");
    found.state = "down";
    EXPECT_EQ(one.found("queue"),
              "warn: main, as seen at 2026-03-01T12:00:00Z: the partition is down: jobs wait in it and none starts "
              "(`atoll facility check leonardo` looks again)");
    EXPECT_TRUE(first_failure(one.examine()).ok()) << "it passes";
}

TEST(JobExaminationTest, MemoryIsComparedWithWhatTheJobAsksForOrTheNodesHave) {
    Case one;
    one.facilities["leonardo"].facility.batch.queues["main"].found.memory_mib_max = 2000;
    EXPECT_NE(one.found("memory").find("fail at participants[0].resources: "), std::string::npos);
    EXPECT_NE(one.found("memory").find("of its 1 rank: weights "), std::string::npos) << one.found("memory");
    one.facilities["leonardo"].facility.batch.queues["main"].found.memory_mib_max = 64000;
    one.spec.participants[0].resources.memory_mib = 16;
    EXPECT_NE(one.found("memory").find("fail at participants[0].resources.memory: "), std::string::npos);
    one.spec.participants[0].resources.memory_mib = 0;
    EXPECT_NE(one.found("memory").find("ok: "), std::string::npos);
    one.spec.participants[0].resources.tasks_per_node = 64;
    EXPECT_NE(one.found("memory").find("fail at participants[0].resources: "), std::string::npos) << "of 64 ranks";
    for (const std::int64_t untold : {0, 1}) {  // Slurm says 1 of a node that it was told nothing of
        one.facilities["leonardo"].facility.batch.queues["main"].found.memory_mib_max = untold;
        EXPECT_NE(one.found("memory").find("skipped: "), std::string::npos);
    }
    one.facilities["leonardo"].devices = {"cpu", "cuda"};
    one.spec.training["device"] = "cuda";
    EXPECT_NE(one.found("memory").find("skipped: a card needs "), std::string::npos);
}

TEST(JobExaminationTest, MemoryOfAGpuIsComparedWithTheQueuesCard) {
    Case one;
    Queue& queue = one.facilities["leonardo"].facility.batch.queues["main"];
    Resources& resources = one.spec.participants[0].resources;
    one.facilities["leonardo"].devices = {"cpu", "cuda", "hip"};
    one.spec.training["device"] = "cuda";
    EXPECT_NE(one.found("memory").find("what it has is not known, as the facility's queue names no card"),
              std::string::npos)
        << one.found("memory");
    queue.card = "l4";
    EXPECT_TRUE(one.found("memory").starts_with("ok: a card needs ")) << one.found("memory");
    EXPECT_TRUE(one.found("memory").ends_with(" of 21.5 GiB of a card l4")) << one.found("memory");
    resources.tasks_per_node = 16;
    EXPECT_TRUE(one.found("memory").ends_with(" of 21.5 GiB of a card l4")) << "one each";
    resources.gpus_per_node = 1;
    EXPECT_TRUE(one.found("memory").starts_with("fail at participants[0].resources: a card needs "))
        << one.found("memory");
    EXPECT_NE(one.found("memory").find("and a rank has 873.6 MiB of a card l4: "), std::string::npos)
        << one.found("memory");
    EXPECT_NE(one.found("memory").find("plan --device cuda --card l4`"), std::string::npos);
    EXPECT_FALSE(first_failure(one.examine()).ok());
    one.spec.training["device"] = "hip";
    EXPECT_TRUE(one.found("memory").starts_with("skipped: ")) << one.found("memory");
}

TEST(JobExaminationTest, WhatIsNotKnownOfATokenizerIsNoFailure) {
    Case one;
    one.copy.fits = std::nullopt;
    EXPECT_EQ(one.found("tokenizer"), "skipped: prepared with that of tiny@01234567, whose settings differ");
    one.copy.prepared_with = "";
    EXPECT_EQ(one.found("tokenizer"), "skipped: not known");
    one.copy.fits = false;
    EXPECT_NE(one.found("tokenizer").find("fail at participants[0].dataset: version 2 of dataset \"it\" at leonardo"),
              std::string::npos);
    one.base.tokenizer = nullptr;
    EXPECT_NE(one.found("tokenizer").find("skipped: the model has none"), std::string::npos);
}

TEST(JobExaminationTest, DataOfAnotherReaderOfTokenizersAreToBePreparedAgain) {
    Case one;
    one.copy.fits = false;
    EXPECT_NE(one.found("tokenizer").find("was prepared with another tokenizer, that of tiny@01234567, than that of"),
              std::string::npos)
        << one.found("tokenizer");
    for (const std::int64_t older : {std::int64_t{0}, std::int64_t{prompt::kTokenizerReader} - 1}) {
        one.copy.tokenizer_reader = older;
        EXPECT_EQ(one.found("tokenizer"),
                  "fail at participants[0].dataset: version 2 of dataset \"it\" at leonardo was prepared by an older "
                  "release, which reads tokenizers differently; prepare it again: atoll dataset prepare it --facility "
                  "leonardo --tokenizer tiny@v1 …");
    }
    one.copy.tokenizer_reader = prompt::kTokenizerReader + 1;
    EXPECT_NE(one.found("tokenizer").find("was prepared by a newer release"), std::string::npos);
}

TEST(JobExaminationTest, TheRulesOfTheSettingsAreTheTrainers) {
    const std::vector<std::pair<Json, std::string>> cases = {
        {{{"epochs", 1}, {"warmup_steps", 8}}, "training.warmup_steps"},
        {{{"trace_steps", 1}, {"trace_from", 4}}, "training.trace_from"},
        {{{"activation_checkpointing", "full"}, {"checkpoint_layers", 9}}, "training.checkpoint_layers"},
        {{{"global_batch_size", 15}, {"batch_size", 16}}, "training.global_batch_size"}};
    for (const auto& [settings, field] : cases) {
        Case one;
        one.spec.training.update(settings);
        if (settings.contains("epochs")) one.spec.training.erase("steps");
        EXPECT_NE(one.found("settings").find("fail at " + field + ": "), std::string::npos) << one.found("settings");
        one.spec.participants[0].training = settings;
        EXPECT_NE(one.found("settings").find("fail at participants[0]." + field + ": "), std::string::npos)
            << one.found("settings");
    }
}

TEST(JobExaminationTest, AJobThatValidatesWhileItTrainsNeedsRowsForIt) {
    Case one;
    EXPECT_EQ(one.found("validation"), "none");
    one.spec.training["eval_every"] = 2;
    EXPECT_EQ(one.found("validation"),
              "ok: every 2 steps and at the end of each training, on all of its validation rows, which have 900 "
              "tokens together");
    one.spec.validation_samples = 640;
    one.spec.training["eval_every"] = "epoch";
    EXPECT_TRUE(one.found("validation")
                    .starts_with("ok: after each epoch and at the end of each training, on at most "
                                 "the first 640 of its validation rows"))
        << one.found("validation");
    one.spec.participants[0].data.validation_tokens = 0;
    EXPECT_EQ(one.found("validation"),
              "fail at participants[0].dataset: version 2 of dataset \"it\" at leonardo has no rows for validation: "
              "leave out training.eval_every, or prepare the dataset with --validation-percent or --validation-input");
    one.spec.participants[0].training = {{"eval_every", 0}};
    EXPECT_NE(one.found("validation").find("leave out participants[0].training.eval_every, or"), std::string::npos);
    one.spec.participants[0].data.validation_tokens = 63;
    EXPECT_NE(
        one.found("validation").find(" has 63 tokens for validation, and the loss of fewer than 64 is not told: "),
        std::string::npos)
        << one.found("validation");
}

TEST(JobExaminationTest, AStepOfMoreRowsThanThereAreIsWarnedOf) {
    Case one;
    one.spec.training["batch_size"] = 101;
    EXPECT_EQ(one.found("batch"),
              "warn: a step takes 101 rows and there are 100: each step sees rows several times; lower "
              "training.batch_size");
    one.spec.training["train_samples"] = 7;
    EXPECT_NE(one.found("batch").find("there are 7:"), std::string::npos);
}

TEST(JobExaminationTest, WhatTravelsIsEachModelOnceAFacilityAndEachUpdateBack) {
    Case one;
    EXPECT_EQ(one.examine().travel.to_facilities_bytes, 10 * 1000);
    EXPECT_EQ(one.examine().travel.from_facilities_bytes, 10 * 900);
    one.spec.evaluation_copies = {one.spec.participants[0].data};
    EXPECT_EQ(one.examine().travel.to_facilities_bytes, 11 * 1000) << "the last one is evaluated";
    one.spec.evaluation_copies.push_back({.facility = "karolina", .dataset = "cs"});
    EXPECT_EQ(one.examine().travel.to_facilities_bytes, 22 * 1000);
    one.spec.evaluate_updates = true;
    EXPECT_EQ(one.examine().travel.to_facilities_bytes, 22 * 1000 + 10 * 900);
}

TEST(JobExaminationTest, SmallUpdatesTravelAsTheirBlocks) {
    Case one;
    const auto elements = static_cast<double>(training_memory::parameter_count(*one.base.config));
    one.spec.training["update_format"] = "int4";
    EXPECT_DOUBLE_EQ(one.examine().travel.from_facilities_bytes, 10 * elements / 128 * 68);
    EXPECT_NE(one.found("rounding_error").find("of two rounds"), std::string::npos);
    one.spec.participants[0].training = {{"update_format", "int8"}};
    EXPECT_DOUBLE_EQ(one.examine().travel.from_facilities_bytes, 10 * elements / 128 * 132);
    EXPECT_EQ(one.examine().travel.to_facilities_bytes, 10 * 1000) << "the models as before";
}

TEST(JobExaminationTest, AdaptersTravelSmallToo) {
    Case one;
    one.base.adapter_parameters = 39'976'960;  // of a 7B, rank 16, all linears
    one.base.adapter_bytes = 2 * one.base.adapter_parameters;
    EXPECT_DOUBLE_EQ(one.examine().travel.from_facilities_bytes, 10 * 79'953'920.0) << "as they are, here bf16";
    one.spec.training["update_format"] = "int8";
    EXPECT_LE(one.examine().travel.from_facilities_bytes, 10 * 42e6);
    EXPECT_NE(one.found("rounding_error").find(human_bytes(4 * one.base.adapter_parameters) + " a round"),
              std::string::npos)
        << one.found("rounding_error");
    one.spec.training["update_format"] = "int4";
    EXPECT_LE(one.examine().travel.from_facilities_bytes, 10 * 22e6);
}

TEST(JobExaminationTest, WhatASiteKeepsOfItsOptimizerIsSaid) {
    Case one;
    EXPECT_EQ(one.found("kept"), "none");
    one.spec.training["keep_optimizer"] = true;
    const auto bytes = 8 * training_memory::parameter_count(*one.base.config);  // AdamW's two moments in fp32
    EXPECT_NE(one.found("kept").find(human_bytes(static_cast<std::uint64_t>(bytes)) + " a round"), std::string::npos)
        << one.found("kept");
}

TEST(JobExaminationTest, ControlVariatesTravelBesideUpdatesAndWithEveryModelButTheFirst) {
    Case one;
    const auto elements = static_cast<double>(training_memory::parameter_count(*one.base.config));
    EXPECT_EQ(one.found("control_variate"), "none");
    one.spec.strategy.control_variate = 0.7;
    EXPECT_DOUBLE_EQ(one.examine().travel.from_facilities_bytes, 10 * (900 + elements / 128 * 132));
    EXPECT_DOUBLE_EQ(one.examine().travel.to_facilities_bytes, 10 * 1000 + 9 * 2 * elements);
    EXPECT_NE(one.found("control_variate").find("ok: each update brings the mean gradient of its training, "),
              std::string::npos)
        << one.found("control_variate");
    one.spec.evaluation_copies = {one.spec.participants[0].data, {.facility = "karolina", .dataset = "cs"}};
    EXPECT_DOUBLE_EQ(one.examine().travel.to_facilities_bytes, 22 * 1000 + 20 * 2 * elements);
}

TEST(JobExaminationTest, OfAdaptersTheModelTravelsOnceAFacility) {
    Case one;
    one.base.adapter_bytes = 10;
    EXPECT_EQ(one.examine().travel.to_facilities_bytes, 1000 + 10 * 10);
    EXPECT_EQ(one.examine().travel.from_facilities_bytes, 10 * 10);
    one.spec.evaluation_copies = {one.spec.participants[0].data, {.facility = "karolina", .dataset = "cs"}};
    EXPECT_EQ(one.examine().travel.to_facilities_bytes, 2 * 1000 + (11 + 11) * 10);
}

TEST(JobExaminationTest, OfAdaptersOnAFrozenModelTheOptimizerKeepsLittle) {
    Case one;
    one.facilities["leonardo"].facility.batch.queues["main"].found.memory_mib_max = 3000;
    EXPECT_NE(one.found("memory").find("fail at "), std::string::npos) << one.found("memory");
    one.spec.training["lora_rank"] = 8;
    EXPECT_NE(one.found("memory").find("ok: "), std::string::npos) << one.found("memory");
}

TEST(JobExaminationTest, TheFirstFailureCountsTheOthers) {
    Case one;
    one.copy.fits = false;
    one.spec.participants[0].data.seq_len = 4096;
    const Status failure = first_failure(one.examine());
    EXPECT_EQ(failure.error().field, "participants[0].dataset");
    EXPECT_NE(failure.error().message.find("(and 2 more: "), std::string::npos) << failure.error().message;
}

}  // namespace
}  // namespace atl::dispatch
