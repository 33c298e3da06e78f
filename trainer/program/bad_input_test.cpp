#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shared/base/testing/sanitizers.h"
#include "shared/run_settings/other_words.h"
#include "shared/safetensors/file.h"
#include "trainer/kernels/device.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class BadInputTest : public ProgramTest {
  protected:
    // Exit code 2, one message that names `what`, nothing on standard output and no model.
    void expect_refused(const CommandResult& result, const std::string& what) const {
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find(what), std::string::npos) << "'" << what << "' is not in: " << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_FALSE(std::filesystem::exists(path("out") + "/model.safetensors"));
    }
    void expect_model_refused(const std::string& what) const {
        expect_refused(train("out", {"--steps", "1"}), what);
        expect_refused(train("out", {"--steps", "1", "--sharding", "full_shard"}, 2), what);
        expect_refused(run({"eval", "--model", path("model"), "--data", path("data.safetensors")}), what);
    }
    static std::string with_tied(const std::string& config, bool tied) {
        auto object = nlohmann::json::parse(config);
        object["tie_word_embeddings"] = tied;
        return object.dump();
    }
    void set_tied(bool tied) const {
        const std::string file = path("model") + "/config.json";
        ASSERT_TRUE(write_file_atomic(file, with_tied(read_file(file).value(), tied)).ok());
    }
    std::string model_file() const { return path("model") + "/model.safetensors"; }
    // The model's file with a header that `change` made of its own, in the length of the old one.
    template <class Change>
    void change_header(Change&& change) const {
        const std::string bytes = read_file(model_file()).value();
        const std::size_t data = safetensors::File::open(model_file()).value().header().data_begin;
        auto header = nlohmann::json::parse(bytes.substr(8, data - 8));
        change(header);
        std::string text = header.dump();
        ASSERT_LE(text.size(), data - 8);
        text.resize(data - 8, ' ');
        ASSERT_TRUE(write_file_atomic(model_file(), bytes.substr(0, 8) + text + bytes.substr(data)).ok());
    }
};

TEST_F(BadInputTest, WrongFlagsAreNamed) {
    expect_refused(train("out", {"--steps", "1", "--frobnicate", "3"}), "--frobnicate");
    expect_refused(train("out", {"--steps", "many"}), "--steps");
    expect_refused(train("out", {"--steps", "1", "--lr", "-1"}), "--lr");
    expect_refused(train("out", {"--steps", "1", "--schedule", "staircase"}), "--schedule");
    expect_refused(train("out", {}), "--steps");
    expect_refused(train("out", {"--steps", "1", "--epochs", "1"}), "--epochs");
    expect_refused(run({"train", "--data", path("data.safetensors"), "--out", path("out"), "--steps", "1"}), "--model");
}

TEST_F(BadInputTest, WhatIsNotBuiltIsRefusedByName) {
    expect_refused(train("out", {"--steps", "1", "--tp", "2"}), "--tp");
    expect_refused(train("out", {"--steps", "1", "--precision", "fp8"}), "--precision");
    expect_refused(train("out", {"--steps", "1", "--offload-params", "nvme"}), "--offload-params");
    const std::string other_gpu = kernels::gpu_device() == "cuda" ? "hip" : "cuda";  // which this build has not
    expect_refused(train("out", {"--steps", "1", "--device", other_gpu}), "--device");
}

TEST_F(BadInputTest, AShardGroupThatDoesNotDivideTheRanksIsRefused) {
    expect_refused(train("out", {"--steps", "1", "--sharding", "hybrid_shard", "--shard-group", "3"}, 2),
                   "--shard-group: ");
    expect_refused(train("out", {"--steps", "1", "--sharding", "full_shard", "--shard-group", "1"}), "--shard-group");
    expect_refused(run({"eval", "--model", path("model"), "--data", path("data.safetensors"), "--sharding",
                        "hybrid_shard", "--shard-group", "3"},
                       2),
                   "--shard-group");
}

TEST_F(BadInputTest, AnUnknownKeyOfTheRunFileIsNamed) {
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"steps": 1, "learning_rate": 1})").ok());
    expect_refused(train("out", {"--config", path("run.json")}), "learning_rate");
}

TEST_F(BadInputTest, ABatchThatDoesNotDivideIsRefusedOnEveryRankWithOneMessage) {
    const auto result = train("out", {"--steps", "1", "--global-batch-size", "9"}, 2);
    expect_refused(result, "--global-batch-size");
    EXPECT_EQ(result.err.find("--global-batch-size"), result.err.rfind("atoll-trainer train: ") + 21);
}

TEST_F(BadInputTest, ATruncatedModelIsNamed) {
    std::filesystem::resize_file(path("model") + "/model.safetensors", 20000);
    expect_refused(train("out", {"--steps", "1"}), "model.safetensors");
    expect_refused(train("out", {"--steps", "1"}, 2), "model.safetensors");
    expect_refused(run({"eval", "--model", path("model"), "--data", path("data.safetensors")}), "model.safetensors");
}

TEST_F(BadInputTest, TensorsThatOverlapAreRefused) {
    change_header([](nlohmann::json& header) {
        auto& offsets = header["model.norm.weight"]["data_offsets"];
        const auto size = offsets[1].get<std::int64_t>() - offsets[0].get<std::int64_t>();
        offsets = {0, size};
    });
    expect_model_refused("model.safetensors");
}

TEST_F(BadInputTest, AHeaderThatLiesAboutShapesIsRefused) {
    change_header([](nlohmann::json& header) { header["model.norm.weight"]["shape"] = {33}; });
    expect_model_refused("model.norm.weight");
}

TEST_F(BadInputTest, AHeaderThatLiesAboutItsLengthIsRefused) {
    const std::string bytes = read_file(model_file()).value();
    for (const char* length : {"\xff\xff\xff\xff\xff\xff\xff\x7f", "\xf8\xff\xff\xff\xff\xff\xff\xff"}) {
        ASSERT_TRUE(write_file_atomic(model_file(), length + bytes.substr(8)).ok());
        expect_model_refused("model.safetensors");
    }
}

TEST_F(BadInputTest, AnIndexThatNamesAMissingFileIsRefused) {
    nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", nlohmann::json::object()}};
    const auto file = safetensors::File::open(model_file()).value();
    for (const auto& tensor : file.header().tensors)
        index["weight_map"][tensor.name] = "model-00001-of-00002.safetensors";
    index["weight_map"]["model.norm.weight"] = "model-00002-of-00002.safetensors";
    std::filesystem::rename(model_file(), path("model") + "/model-00001-of-00002.safetensors");
    ASSERT_TRUE(write_file_atomic(model_file() + ".index.json", index.dump()).ok());
    expect_model_refused("model-00002-of-00002.safetensors");
}

TEST_F(BadInputTest, AWeightThatIsNotANumberIsNamed) {
    const auto file = safetensors::File::open(model_file()).value();
    const auto* tensor = file.header().find("model.layers.1.mlp.up_proj.weight");
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(tensor->dtype, safetensors::DType::kF16);
    std::string bytes = read_file(model_file()).value();
    bytes.replace(file.header().data_begin + tensor->begin + 2 * 7, 2, "\x01\x7e", 2);
    ASSERT_TRUE(write_file_atomic(model_file(), bytes).ok());
    expect_model_refused("model.layers.1.mlp.up_proj.weight");
    EXPECT_NE(train("out", {"--steps", "1"}).err.find("element 7"), std::string::npos);
}

TEST_F(BadInputTest, ATiedHeadThatIsNotTheEmbeddingIsRefused) {
    const std::string table = "model.embed_tokens.weight", what = "\"lm_head.weight\"";
    set_tied(true);
    expect_model_refused(what);
    for (const char* rank0 : {"none", "full_shard"})
        expect_refused(train("out", {"--steps", "1", "--sharding", rank0, "--broadcast-from-rank0"}, 2), what);
    expect_refused(run({"plan", "--model", path("model"), "--data", path("data.safetensors")}), what);
    expect_refused(run({"generate", "--model", path("model"), "--prompt", "a"}), what);
    set_tied(false);
    ASSERT_EQ(train("adapter", {"--steps", "1", "--lora-rank", "2"}).exit_code, 0);
    set_tied(true);
    expect_refused(run({"merge", "--model", path("model"), "--adapter", path("adapter"), "--out", path("out")}), what);
    const auto file = safetensors::File::open(model_file()).value();
    const auto &head = *file.header().find("lm_head.weight"), &tied = *file.header().find(table);
    std::string bytes = read_file(model_file()).value();
    const std::size_t data = file.header().data_begin;
    bytes.replace(data + head.begin, head.end - head.begin, bytes, data + tied.begin, tied.end - tied.begin);
    ASSERT_TRUE(write_file_atomic(model_file(), bytes).ok());
    for (const int ranks : {1, 2}) EXPECT_EQ(train("out", {"--steps", "1"}, ranks).exit_code, 0);
    bytes[data + head.end - 1] ^= 1;  // in the last rank's part
    ASSERT_TRUE(write_file_atomic(model_file(), bytes).ok());
    std::filesystem::remove_all(path("out"));
    expect_model_refused(what);
}

TEST_F(BadInputTest, AnOptModelsTiedHeadThatIsNotTheEmbeddingIsRefused) {
    const std::string config = ATOLL_GOLDEN_DIR "/training/opt/config.json";
    ASSERT_TRUE(write_file_atomic(path("config.json"), with_tied(read_file(config).value(), false)).ok());
    ASSERT_EQ(run({"init", "--config", path("config.json"), "--out", path("model"), "--overwrite"}).exit_code, 0);
    set_tied(true);
    expect_model_refused("\"lm_head.weight\"");
}

TEST_F(BadInputTest, DataOfAnotherTokenizerIsRefused) {
    const std::filesystem::path tokenizers = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers";
    ASSERT_TRUE(write_file_atomic(path("in.jsonl"), R"({"text": "Il treno"})").ok());
    ASSERT_EQ(run({"tokenize", "--tokenizer", tokenizers / "small", "--input", path("in.jsonl"), "--out", path("data"),
                   "--seq-len", "16"})
                  .exit_code,
              0);
    const auto eval = [&] { return run({"eval", "--model", path("model"), "--data", path("data")}); };
    for (const char* file : {"tokenizer.model", "tokenizer_config.json"})
        std::filesystem::copy(tokenizers / "small" / file, path("model"));
    expect_refused(eval(), "vocabulary");  // of the small model: the tokenizer is the same
    ASSERT_TRUE(write_file_atomic(path("model/tokenizer_config.json"), R"({"add_bos_token": false})").ok());
    expect_refused(eval(), path("data") + " ");
    ASSERT_TRUE(write_file_atomic(path("model/tokenizer_config.json"), "broken").ok());
    expect_refused(eval(), "tokenizer_config.json");
    std::filesystem::remove(path("model/tokenizer_config.json"));
    std::filesystem::remove(path("model/tokenizer.model"));
    std::filesystem::copy(tokenizers / "gpt2/tokenizer.json", path("model"));
    for (const int ranks : {1, 2}) {
        expect_refused(
            run({"train", "--model", path("model"), "--data", path("data"), "--out", path("out"), "--steps", "1"},
                ranks),
            path("data") + " ");
    }
    expect_refused(train("out", {"--steps", "1", "--val-data", path("data")}), path("data") + " ");
    expect_refused(eval(), path("data") + " ");
    std::filesystem::remove(path("model") + "/tokenizer.json");
    std::filesystem::copy(tokenizers / "opt/vocab.json", path("model"));
    std::filesystem::copy(tokenizers / "opt/merges.txt", path("model"));
    expect_refused(eval(), path("data") + " ");
}

TEST_F(BadInputTest, APromptBeyondTheContextIsToldApartFromTooManyTokens) {
    const auto generate = [&](int words, const char* tokens) {
        std::string prompt;
        for (int i = 0; i < words; ++i) prompt += "~";
        return run({"generate", "--model", path("model"), "--prompt", prompt, "--max-tokens", tokens});
    };
    auto config = nlohmann::json::parse(read_file(path("config.json")).value());
    config["vocab_size"] = 512;
    ASSERT_TRUE(write_file_atomic(path("more.json"), config.dump()).ok());
    ASSERT_EQ(run({"init", "--config", path("more.json"), "--tokenizer", ATOLL_FIXTURES "/tokenizers/gpt2", "--out",
                   path("model"), "--overwrite"})
                  .exit_code,
              0);
    expect_refused(generate(100, "1"), "--prompt: ");
    expect_refused(generate(1, "100"), "--max-tokens: ");
}

TEST_F(BadInputTest, ATokenizersExpressionThatRunsAwayIsNamed) {
    auto json = nlohmann::json::parse(read_file(ATOLL_FIXTURES "/tokenizers/gpt2/tokenizer.json").value());
    json["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers",
                              {{{"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}},
                               {{"type", "ByteLevel"}, {"use_regex", false}}}}};
    ASSERT_TRUE(write_file_atomic(path("model/tokenizer.json"), json.dump()).ok());
    const std::string text = std::string(40, 'a') + "b";
    expect_refused(run({"generate", "--model", path("model"), "--prompt", text, "--max-tokens", "1"}), "pre_tokenizer");
    ASSERT_TRUE(write_file_atomic(path("in.jsonl"), nlohmann::json{{"text", text}}.dump()).ok());
    expect_refused(run({"tokenize", "--tokenizer", path("model"), "--input", path("in.jsonl"), "--out", path("data"),
                        "--seq-len", "16"}),
                   "in.jsonl:1: pre_tokenizer");
}

TEST_F(BadInputTest, AMissingModelOrDataIsNamed) {
    std::filesystem::remove(path("model") + "/config.json");
    expect_refused(train("out", {"--steps", "1"}), "config.json");
    expect_refused(run({"eval", "--model", path("nowhere"), "--data", path("data.safetensors")}), "nowhere");
    std::filesystem::remove(path("data.safetensors"));
    expect_refused(run({"eval", "--model", path("model"), "--data", path("data.safetensors")}), "model");
}

TEST_F(BadInputTest, ATokenOutsideTheVocabularyIsRefusedWhereverItIs) {
    std::vector<std::int32_t> ids(16 * 4, 5);
    ids.back() = 90;  // in the last rank's part
    write_data("bad.safetensors", 16, {{"input_ids", ids}});
    for (const int ranks : {1, 2}) {
        const auto result = run({"train", "--model", path("model"), "--data", path("bad.safetensors"), "--out",
                                 path("out"), "--steps", "1"},
                                ranks);
        expect_refused(result, "90");
        EXPECT_NE(result.err.find("bad.safetensors"), std::string::npos) << result.err;
        expect_refused(train("out", {"--steps", "1", "--val-data", path("bad.safetensors")}, ranks), "row 3");
        expect_refused(run({"eval", "--model", path("model"), "--data", path("bad.safetensors")}, ranks), "row 3");
    }
}

TEST_F(BadInputTest, ValidationRowsOfAnotherLengthAreRefused) {
    for (const std::int64_t seq_len : {8, 32}) {
        write_data("other.safetensors", seq_len,
                   {{"input_ids", std::vector<std::int32_t>(static_cast<std::size_t>(4 * seq_len), 5)}});
        const auto result = train("out", {"--steps", "1", "--val-data", path("other.safetensors")});
        expect_refused(result, "--val-data: ");
    }
}

TEST_F(BadInputTest, ALabelOutsideTheVocabularyIsRefused) {
    const std::vector<std::int32_t> ids(16 * 4, 5);
    std::vector<std::int32_t> labels = ids;
    labels[18] = -1;
    write_data("bad.safetensors", 16, {{"input_ids", ids}, {"labels", labels}});
    for (const char* command : {"train", "eval"}) {
        std::vector<std::string> arguments = {command, "--model", path("model"), "--data", path("bad.safetensors")};
        if (command == std::string("train")) arguments.insert(arguments.end(), {"--out", path("out"), "--steps", "1"});
        const auto result = run(arguments);
        for (const char* named : {"label -1", "row 1", "column 2"}) expect_refused(result, named);
    }
}

TEST_F(BadInputTest, DataWithoutATargetIsRefusedByName) {
    const std::vector<std::int32_t> ids(16 * 4, 5);
    std::vector<std::int32_t> labels(ids.size(), -100);
    labels[16] = 5;  // nothing stands before it
    write_data("none.safetensors", 16, {{"input_ids", ids}, {"labels", labels}});
    const std::vector<std::string> eval = {"eval", "--model", path("model"), "--data", path("none.safetensors")};
    for (const int ranks : {1, 2}) {
        expect_refused(run(eval, ranks), "--data");
        expect_refused(run(eval, ranks), "none.safetensors");
        expect_refused(run({"train", "--model", path("model"), "--data", path("none.safetensors"), "--out", path("out"),
                            "--steps", "1"},
                           ranks),
                       "--data: ");
        expect_refused(train("out", {"--steps", "1", "--val-data", path("none.safetensors")}, ranks), "--val-data");
    }
    labels.back() = 5;  // in the last rank's part
    write_data("none.safetensors", 16, {{"input_ids", ids}, {"labels", labels}});
    for (const int ranks : {1, 2}) EXPECT_EQ(run(eval, ranks).exit_code, 0);
}

TEST_F(BadInputTest, RowsLongerThanTheModelAllowsAreRefused) {
    write_data("long.safetensors", 64, {{"input_ids", std::vector<std::int32_t>(64 * 2, 5)}});
    expect_refused(run({"eval", "--model", path("model"), "--data", path("long.safetensors")}),
                   "max_position_embeddings");
}

TEST_F(BadInputTest, ARunThatCannotFitExitsWithThreeAndSaysWhatWould) {
    ATOLL_SKIP_IF_SANITIZED();
    make_wide_model("model");
    std::vector<std::string> arguments = {"plan",         "--model", path("model"), "--data", path("data.safetensors"),
                                          "--batch-size", "32",      "--threads",   "1"};
    const auto fits = run(arguments);
    ASSERT_EQ(fits.exit_code, 0) << fits.err;
    const double limit = member(fits.out, "total_bytes").at(0) - 500000;
    arguments.insert(arguments.end(), {"--memory-bytes", std::to_string(static_cast<std::int64_t>(limit))});
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_code, 3) << result.out;
    EXPECT_NE(result.err.find("--sharding none --batch-size "), std::string::npos) << result.err;
}

class TooLargeTest : public BadInputTest {
  protected:
    TooLargeTest() {
        auto config = nlohmann::json::parse(read_file(path("config.json")).value());
        config.update({{"vocab_size", 480}, {"intermediate_size", 1 << 16}, {"max_position_embeddings", 1LL << 33}});
        EXPECT_TRUE(write_file_atomic(path("wide.json"), config.dump()).ok());
        EXPECT_EQ(run({"init", "--config", path("wide.json"), "--tokenizer", ATOLL_FIXTURES "/tokenizers/small",
                       "--out", path("model"), "--overwrite"})
                      .exit_code,
                  0);
        constexpr std::int64_t kLength = 2048,
                               kMany = 2048;  // of 4 million tokens: 1 TB of the feed-forward's channels
        write_data("long.safetensors", kLength, {{"input_ids", std::vector<std::int32_t>(kLength * kMany, 5)}});
    }
};

TEST_F(TooLargeTest, ATrainingThatCannotFitSaysSoBeforeItReadsItsWeights) {
    if (ATOLL_SANITIZED) GTEST_SKIP() << "a sanitizer's own library must come first, not the one that ends the program";
    const auto refused = run_under({"env", "LD_PRELOAD=" ATOLL_DIE_AT_CALL, "ATOLL_DIE_READING=model.safetensors"},
                                   command({"train", "--model", path("model"), "--data", path("long.safetensors"),
                                            "--out", path("out"), "--steps", "1", "--batch-size", "2048"},
                                           1));
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    EXPECT_NE(refused.err.find("memory: "), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(path("out")) || std::filesystem::exists(path("out.state")));
}

TEST_F(TooLargeTest, EvalAndGenerateThatCannotFitExitWithThreeBeforeTheyStart) {
    const auto evaluated =
        run({"eval", "--model", path("model"), "--data", path("long.safetensors"), "--batch-size", "2048"});
    EXPECT_EQ(evaluated.exit_code, 3);
    EXPECT_NE(evaluated.err.find("--batch-size "), std::string::npos) << evaluated.err;
    const auto generated =
        run({"generate", "--model", path("model"), "--prompt", "a", "--max-tokens", std::to_string(1LL << 32)});
    EXPECT_EQ(generated.exit_code, 3);
    EXPECT_NE(generated.err.find("memory: "), std::string::npos) << generated.err;
}

TEST_F(BadInputTest, WhatMeansNothingIsRefusedOrTold) {
    expect_refused(train("out", {"--steps", "1", "--cross-document-attention", "on"}), "--cross-document-attention: ");
    expect_refused(train("out", {"--steps", "0", "--val-data", path("data.safetensors")}), "--val-data: ");
    const auto high = train("high", {"--steps", "1", "--lora-rank", "999"});
    EXPECT_EQ(high.exit_code, 0);
    EXPECT_NE(high.err.find("--lora-rank 16"), std::string::npos) << high.err;
}

TEST_F(BadInputTest, AStepThatSeesRowsSeveralTimesIsToldWithWhatMakesItSmaller) {
    const auto told_of_two_rows = [&](std::vector<std::string> flags, int ranks = 1) {
        flags.insert(flags.end(), {"--steps", "1", "--train-samples", "2"});
        const auto result = train("large", flags, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result.err;
    };
    const auto says = [](const std::string& told, const std::string& words) {
        EXPECT_NE(told.find(words), std::string::npos) << told;
    };
    says(told_of_two_rows({"--batch-size", "100"}), "--batch-size");
    says(told_of_two_rows({"--grad-accum", "8"}), "--grad-accum");
    says(told_of_two_rows({"--global-batch-size", "8", "--batch-size", "4"}), "--global-batch-size");
    says(told_of_two_rows({}, 3), "ranks");
}

TEST_F(BadInputTest, ADirectoryOfAnotherKindIsNamedWithWhatToGive) {
    ASSERT_EQ(train("out", {"--steps", "2", "--lora-rank", "2", "--time-limit", kAtOnce}).exit_code, 0);
    ASSERT_EQ(train("adapter", {"--steps", "1", "--lora-rank", "2"}).exit_code, 0);
    ASSERT_TRUE(write_file_atomic(path("in.jsonl"), R"({"text": "Il treno"})").ok());
    const std::string tokenizer = ATOLL_FIXTURES "/tokenizers/small";
    ASSERT_EQ(run({"tokenize", "--tokenizer", tokenizer, "--input", path("in.jsonl"), "--out", path("data"),
                   "--seq-len", "16"})
                  .exit_code,
              0);
    const std::string is_state = "' is the state of a training: give that training's --out, the name without .state";
    const std::string unfinished = " yet: `train --resume` goes on from '" + path("out.state") + "'";
    const std::string a_model = ": give a directory with a model", an_adapter = ": give a directory with an adapter";
    const std::vector<std::array<std::string, 3>> cases = {
        {path("out"), "' holds no model" + unfinished, "' holds no adapter" + unfinished},
        {path("out.state"), is_state, is_state},
        {path("adapter.state"), is_state, is_state},
        {path("data"), "' holds tokenized data" + a_model, "' holds tokenized data" + an_adapter},
        {tokenizer, "' holds a tokenizer" + a_model, "' holds a tokenizer" + an_adapter}};
    const auto eval = [&](const std::string& model, const std::string& adapter) {
        return run({"eval", "--model", model, "--data", path("data.safetensors"), "--adapter", adapter});
    };
    for (const auto& [given, for_model, for_adapter] : cases) {
        expect_refused(eval(given, path("adapter")), "--model: '" + given + for_model);
        expect_refused(eval(path("model"), given), "--adapter: '" + given + for_adapter);
    }
    expect_refused(eval(path("model"), path("model")), "--adapter: '" + path("model") + "' holds a model" + an_adapter);
}

TEST_F(BadInputTest, AnUnknownCommandListsTheCommands) {
    const auto result = run({"tran"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("train?"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("tokenizer-train"), std::string::npos);
}

TEST_F(BadInputTest, AMistypedFlagIsNamedNotItsValue) {
    const auto result = train("out", {"--stpes", "3"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--stpes"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--steps"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("'3'"), std::string::npos) << result.err;
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"step": 3})").ok());
    const auto of_file = train("out", {"--config", path("run.json")});
    EXPECT_NE(of_file.err.find("step (" + path("run.json") + ")"), std::string::npos) << of_file.err;
}

TEST_F(BadInputTest, WordsOfOtherProgramsAreAnsweredWithOurs) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{"train", "--learning-rate", "1e-4"}, "--learning-rate is --lr here"},
        {{"train", "--max_steps=3"}, "--max_steps is --steps here"},
        {{"train", "--bf16"}, "--bf16 is --precision bf16 here"},
        {{"eval", "--learning-rate", "1"}, "--learning-rate is --lr of `train` here"},
        {{"train", "--max-seq-length", "8"}, "--max-seq-length is --seq-len of `tokenize` here"},
        {{"tokenize", "--max-seq-length", "8"}, "--max-seq-length is --seq-len here"},
        {{"train", "--nproc-per-node", "8"}, "mpirun"}};
    for (const auto& [arguments, answer] : cases) expect_refused(run(arguments), answer);
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"num_train_epochs": 3})").ok());
    expect_refused(train("out", {"--config", path("run.json")}),
                   "num_train_epochs (" + path("run.json") + "): is epochs");
    const auto trained = train("out", {"--steps", "1", "--batch_size=2", "--val_data", path("data.safetensors")});
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
}

TEST_F(BadInputTest, EachWordOfAnotherProgramLeadsToAFlagThatTheCommandHas) {
    std::size_t asked = 0;
    for (const run_settings::OtherWord& other : run_settings::other_words()) {
        const bool is_of_train = other.command.empty();
        if (is_of_train && other.option != "config") continue;  // an option: other_words_test.cpp asks the table
        const std::string flag = "--" + std::string(other.word);
        const std::string said = our_word(other);
        expect_refused(run({std::string(is_of_train ? "train" : other.command), flag, "x"}), flag + " " + said);
        ++asked;
    }
    EXPECT_GT(asked, 10U);
}

TEST_F(BadInputTest, TextGivenAsDataIsRefusedWithTheWayOn) {
    ASSERT_TRUE(write_file_atomic(path("it.jsonl"), "{\"text\": \"Nel mezzo del cammin\"}\n").ok());
    ASSERT_TRUE(write_file_atomic(path("short.txt"), "Nel").ok());
    ASSERT_TRUE(write_file_atomic(path("it.jsonl.gz"), "\x1f\x8b\x08 and so on").ok());
    for (const char* file : {"it.jsonl", "short.txt", "it.jsonl.gz"})
        expect_refused(
            run({"train", "--model", path("model"), "--data", path(file), "--out", path("o"), "--steps", "1"}),
            "`atoll-trainer tokenize`");
}

TEST_F(BadInputTest, TheProgramSaysItsVersion) {
    const auto result = run({"--version"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_TRUE(result.out.starts_with("atoll-trainer ")) << result.out;
}

TEST_F(BadInputTest, ADivergingRunIsToldOnceByAllRanks) {
    const auto result = train("out",
                              {"--steps", "9", "--global-batch-size", "2", "--lr", "1000", "--optimizer", "sgd",
                               "--weight-decay", "1", "--max-grad-norm", "0"},
                              2);
    EXPECT_EQ(result.exit_code, 4) << result.err;
    const std::string told = "at step";
    const auto first = result.err.find(told);
    ASSERT_NE(first, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(told, first + 1), std::string::npos) << result.err;
}

}  // namespace
}  // namespace atl::program
