// Adapters as users train, evaluate and merge them, against peft: tests/numerics/make_lora_goldens.py made the numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "shared/safetensors/file.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

constexpr std::array kModels = {"", "heads", "opt", "opt/heads"};

class LoraProgramTest : public ProgramTest {
  protected:
    // The goldens of Llama, "heads", "opt" or "opt/heads".
    void take(const std::string& model) {
        folder_ = goldens_ / "lora" / model;
        golden_ = (exists(folder_ / "config.json") ? "lora/" : "training/") + model;
        make_golden_base();
    }
    std::string adapter() const { return (folder_ / "adapter").string(); }

    // The 20 steps of the golden numbers in `file`, with further flags.
    void expect_golden_steps(const std::string& file, const std::vector<std::string>& flags, int ranks) const {
        const auto text = read_file(folder_ / file);
        ASSERT_TRUE(text.ok());
        const auto golden = nlohmann::json::parse(*text);
        std::vector<std::string> arguments = {"train", "--model", path("golden"), "--data", path("golden.safetensors")};
        arguments.insert(arguments.end(),
                         {"--adapter", adapter(), "--out", path("out"), "--overwrite", "--steps", "20"});
        arguments.insert(arguments.end(), {"--global-batch-size", "4", "--shuffle", "off", "--lr", "5e-3"});
        arguments.insert(arguments.end(), {"--beta2", "0.98", "--weight-decay", "0.1", "--threads", "1"});
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const auto result = run(arguments, ranks);
        const auto losses = member(result.out, "loss");
        const auto norms = member(result.out, "grad_norm");
        ASSERT_EQ(losses.size(), 20U) << result.err;
        for (std::size_t i = 0; i < 20; ++i) {
            EXPECT_NEAR(losses[i] / golden["loss"][i].get<double>(), 1, 1e-5) << "step " << i + 1;
            EXPECT_NEAR(norms[i] / golden["grad_norm"][i].get<double>(), 1, 1e-4) << "step " << i + 1;
        }
    }

    std::vector<float> floats(const std::filesystem::path& file, const std::string& name) const {
        const auto opened = safetensors::File::open(file);
        const auto* tensor = opened.ok() ? opened->header().find(name) : nullptr;
        EXPECT_NE(tensor, nullptr) << file << " " << name;
        if (tensor == nullptr) return {};
        const auto bytes = opened->bytes(*tensor);
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    std::string bytes_of(const std::string& directory) const {
        const auto bytes = read_file(path(directory) + "/adapter_model.safetensors");
        EXPECT_TRUE(bytes.ok()) << directory;
        return bytes.ok() ? *bytes : std::string();
    }
    // The fixture's model with one tensor of 64-bit integers more.
    void write_with_integers(const std::string& out, const std::string& name) const {
        const auto file = safetensors::File::open(path("model") + "/model.safetensors").value();
        auto infos = file.header().tensors;
        infos.push_back({name, safetensors::DType::kI64, {2}, 0, 0});
        std::filesystem::create_directories(path(out));
        std::filesystem::copy(path("model") + "/config.json", path(out),
                              std::filesystem::copy_options::overwrite_existing);
        auto writer = safetensors::Writer::create(path(out) + "/model.safetensors", infos);
        ASSERT_TRUE(writer.ok());
        for (const auto& tensor : file.header().tensors) ASSERT_TRUE(writer->append(file.bytes(tensor)).ok());
        const std::vector<std::byte> zeros(16);
        ASSERT_TRUE(writer->append(zeros).ok());
        ASSERT_TRUE(writer->finish().ok());
    }
    // `train` with adapters of rank 4 on all linears.
    CommandResult train_lora(const std::string& out, std::vector<std::string> flags, int ranks = 1) const {
        const std::vector<std::string> lora = {"--lora-rank",  "4",   "--lora-targets", "all-linear",
                                               "--save-dtype", "fp32"};
        flags.insert(flags.end(), lora.begin(), lora.end());
        return train(out, flags, ranks);
    }

    const std::filesystem::path goldens_ = ATOLL_GOLDEN_DIR;
    std::filesystem::path folder_ = goldens_ / "lora";
};

TEST_F(LoraProgramTest, TheFirstTwentyStepsAreThoseOfPeft) {
    for (const char* model : kModels) {
        SCOPED_TRACE(model);
        take(model);
        for (const int ranks : {1, 2}) expect_golden_steps("steps.json", {}, ranks);
    }
}

TEST_F(LoraProgramTest, WithDropoutTheStepsAreThoseOfPeftWhateverTheRanks) {
    const std::vector<std::string> dropout = {"--lora-dropout", "0.25", "--seed", "7"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), dropout.begin(), dropout.end());
        return more;
    };
    for (const char* model : kModels) {
        SCOPED_TRACE(model);
        take(model);
        expect_golden_steps("steps_dropout.json", dropout, 1);
        for (const char* again : {"feed-forward", "all-but-attention", "full"})
            expect_golden_steps("steps_dropout.json", with({"--grad-accum", "4", "--activation-checkpointing", again}),
                                1);
        expect_golden_steps("steps_dropout.json", with({"--sharding", "full_shard"}), 2);
        expect_golden_steps("steps_dropout.json", with({"--deterministic"}), 4);
    }
}

// A micro-step of 160 tokens has its loss in three pieces, one of 40 in one.
TEST_F(LoraProgramTest, WhatIsDroppedBeforeTheHeadDoesNotDependOnThePieces) {
    auto config = nlohmann::json::parse(*read_file(path("config.json")));
    config.update({{"vocab_size", 40000}, {"max_position_embeddings", 64}});
    ASSERT_TRUE(write_file_atomic(path("large.json"), config.dump()).ok());
    ASSERT_EQ(run({"init", "--config", path("large.json"), "--out", path("model"), "--overwrite"}).exit_code, 0);
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < 8 * 40; ++i) ids.push_back(i * 7919 % 40000);
    write_data("data.safetensors", 40, {{"input_ids", ids}});
    const auto losses = [&](const std::string& rows) {
        const auto result =
            train("out", {"--steps", "4", "--global-batch-size", "4", "--batch-size", rows, "--lr", "0.1",
                          "--lora-rank", "2", "--lora-targets", "lm_head", "--lora-dropout", "0.5"});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return member(result.out, "loss");
    };
    const auto whole = losses("4"), rows = losses("1");
    ASSERT_EQ(whole.size(), 4U);
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_LT(whole[3], whole[0] - 0.1);
    for (std::size_t step = 0; step < whole.size(); ++step) EXPECT_NEAR(whole[step] / rows[step], 1, 1e-5) << step;
}

TEST_F(LoraProgramTest, DropoutIsForTrainingAloneAndItsBitsDoNotDependOnTheRun) {
    const std::vector<std::string> flags = {
        "--steps", "4", "--global-batch-size", "4", "--deterministic", "--lora-dropout", "0.5", "--lr", "2e-2"};
    const auto with = [&](const std::vector<std::string>& more) {
        auto all = flags;
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    ASSERT_EQ(train_lora("one", flags).exit_code, 0);
    ASSERT_EQ(train_lora("two", with({"--sharding", "full_shard"}), 2).exit_code, 0);
    EXPECT_EQ(bytes_of("two") == bytes_of("one"), true);
    ASSERT_EQ(train_lora("part", with({"--time-limit", kAtOnce})).exit_code, 0);
    ASSERT_EQ(train_lora("part", with({"--resume", "--activation-checkpointing", "full"}), 2).exit_code, 0);
    EXPECT_EQ(bytes_of("part") == bytes_of("one"), true);
    ASSERT_EQ(train_lora("other", with({"--seed", "1", "--shuffle", "off"})).exit_code, 0);
    EXPECT_EQ(bytes_of("other") == bytes_of("one"), false);

    const auto loss = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"eval", "--data", path("data.safetensors")});
        return member(run(more).out, "loss").at(0);
    };
    const double apart = loss({"--model", path("model"), "--adapter", path("one")});
    EXPECT_EQ(loss({"--model", path("model"), "--adapter", path("one")}), apart);
    ASSERT_EQ(run({"merge", "--model", path("model"), "--adapter", path("one"), "--out", path("merged"), "--overwrite",
                   "--save-dtype", "fp32"})
                  .exit_code,
              0);
    EXPECT_NEAR(loss({"--model", path("merged")}) / apart, 1, 1e-5);
}

TEST_F(LoraProgramTest, AMergedModelIsThatOfPeftAndHasTheLossOfModelAndAdapter) {
    const std::vector<std::pair<std::string, std::vector<std::string>>> models = {
        {"", {"model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"}},
        {"opt", {"model.decoder.layers.0.self_attn.v_proj.weight", "model.decoder.layers.1.fc2.weight"}}};
    for (const auto& [model, names] : models) {
        take(model);
        const auto merged =
            run({"merge", "--model", path("golden"), "--adapter", adapter(), "--out", path("merged"), "--overwrite"});
        ASSERT_EQ(merged.exit_code, 0) << merged.err;
        EXPECT_EQ(merged.err, "");
        for (const std::string& name : names) {
            const auto expected = floats(folder_ / "golden.safetensors", "merged:" + name);
            const auto values = floats(path("merged") + "/model.safetensors", name);
            const auto before = floats(path("golden") + "/model.safetensors", name);
            ASSERT_EQ(values.size(), expected.size());
            for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-6) << name;
            EXPECT_NE(values, before);
        }
        const auto eval = [&](std::vector<std::string> more) {
            more.insert(more.begin(), {"eval", "--data", path("golden.safetensors")});
            const auto result = run(more);
            EXPECT_EQ(result.exit_code, 0) << result.err;
            return member(result.out, "loss").at(0);
        };
        const double apart = eval({"--model", path("golden"), "--adapter", adapter()});
        EXPECT_NEAR(eval({"--model", path("merged")}) / apart, 1, 1e-5);
        EXPECT_GT(std::abs(eval({"--model", path("golden")}) / apart - 1), 1e-4);
    }
}

// Adapters that only peft's own keys describe: goldens/lora/rslora and so on.
TEST_F(LoraProgramTest, WhatOnlyPeftSaysIsTrainedMergedEvaluatedAndKept) {
    const std::map<std::string, std::vector<std::string>> models = {
        {"rslora", {"model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"}},
        {"patterns", {"model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight"}},
        {"regex", {"model.layers.0.self_attn.v_proj.weight", "model.layers.0.mlp.up_proj.weight"}},
        {"layers", {"model.layers.1.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"}}};
    make_golden_base();
    for (const auto& [kind, names] : models) {
        SCOPED_TRACE(kind);
        folder_ = goldens_ / "lora" / kind;
        for (const int ranks : {1, 2}) expect_golden_steps("steps.json", {}, ranks);
        expect_golden_steps("steps.json", {"--sharding", "full_shard"}, 2);
        expect_golden_steps("steps_dropout.json",
                            {"--lora-dropout", "0.25", "--seed", "7", "--activation-checkpointing", "full"}, 1);
        const auto config = nlohmann::json::parse(read_file(path("out") + "/adapter_config.json").value());
        const auto given = nlohmann::json::parse(read_file(adapter() + "/adapter_config.json").value());
        for (const char* key : {"r", "lora_alpha", "use_rslora", "target_modules", "rank_pattern", "alpha_pattern",
                                "layers_to_transform"})
            EXPECT_TRUE(config.value(key, given[key]) == given[key]) << key;
        const auto merged =
            run({"merge", "--model", path("golden"), "--adapter", adapter(), "--out", path("merged"), "--overwrite"});
        ASSERT_EQ(merged.exit_code, 0) << merged.err;
        for (const std::string& name : names) {
            const auto expected = floats(folder_ / "golden.safetensors", "merged:" + name);
            const auto values = floats(path("merged") + "/model.safetensors", name);
            ASSERT_EQ(values.size(), expected.size());
            for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-6) << name;
        }
        const auto eval = [&](std::vector<std::string> more) {
            more.insert(more.begin(), {"eval", "--data", path("golden.safetensors")});
            const auto result = run(more);
            EXPECT_EQ(result.exit_code, 0) << result.err;
            return member(result.out, "loss").at(0);
        };
        const double apart = eval({"--model", path("golden"), "--adapter", adapter()});
        EXPECT_NEAR(eval({"--model", path("merged")}) / apart, 1, 1e-5);
    }
}

TEST_F(LoraProgramTest, WhatCannotBeToldOfAnAdapterIsNamedWithFileAndKey) {
    make_golden_base();
    std::filesystem::copy(goldens_ / "lora" / "patterns" / "adapter", path("odd"));
    const auto config = nlohmann::json::parse(*read_file(path("odd") + "/adapter_config.json"));
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, nlohmann::json>>{{"target_modules", ".*experts.*"},
                                                             {"target_modules", "(?<=self_attn.)q_proj"},
                                                             {"alpha_pattern", {{"v_proj", 3}, {".*attn.v_proj", 4}}},
                                                             {"use_dora", true}}) {
        auto other = config;
        other[key] = value;
        ASSERT_TRUE(write_file_atomic(path("odd") + "/adapter_config.json", other.dump()).ok());
        const auto result = run({"merge", "--model", path("golden"), "--adapter", path("odd"), "--out", path("m")});
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_NE(result.err.find("adapter_config.json: " + key), std::string::npos) << result.err;
    }
}

TEST_F(LoraProgramTest, AnAdapterOfTorchSaveIsImportedAndUsed) {
    make_golden_base();
    folder_ = goldens_ / "lora" / "rslora";
    const std::string bin = (folder_ / "bin").string();
    const std::vector<std::string> eval = {"eval", "--model", path("golden"), "--data", path("golden.safetensors")};
    const auto with = [&](const std::string& given) {
        auto arguments = eval;
        arguments.insert(arguments.end(), {"--adapter", given});
        return run(arguments);
    };
    const auto refused = with(bin);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("atoll-trainer import --from " + bin), std::string::npos) << refused.err;
    const auto imported = run({"import", "--from", bin, "--out", path("imported")});
    ASSERT_EQ(imported.exit_code, 0) << imported.err;
    EXPECT_EQ(imported.err, "");
    EXPECT_EQ(with(path("imported")).out, with(adapter()).out);
}

TEST_F(LoraProgramTest, OnlyTheAdapterIsTrainedAndWritten) {
    const auto result = train_lora("out", {"--steps", "30", "--global-batch-size", "8", "--lr", "2e-2"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto losses = member(result.out, "loss");
    EXPECT_LT(losses.back(), 0.95 * losses.front());
    EXPECT_FALSE(std::filesystem::exists(path("out") + "/model.safetensors"));
    const auto evaluated =
        run({"eval", "--model", path("model"), "--adapter", path("out"), "--data", path("data.safetensors")});
    EXPECT_LT(member(evaluated.out, "loss").at(0), losses.back() + 0.1) << evaluated.err;
    EXPECT_EQ(run({"merge", "--model", path("model"), "--adapter", path("out"), "--out", path("merged"), "--overwrite"})
                  .exit_code,
              0);
    EXPECT_EQ(run({"eval", "--model", path("merged"), "--data", path("data.safetensors")}).exit_code, 0);
}

// Bytes of the tensors of an adapter whose names end so.
std::map<std::string, std::string> factors(const std::string& out, std::string_view ending) {
    std::map<std::string, std::string> bytes;
    const auto file = safetensors::File::open(out + "/adapter_model.safetensors");
    if (!file.ok()) return bytes;
    for (const auto& tensor : file->header().tensors) {
        if (!tensor.name.ends_with(ending)) continue;
        const auto values = file->bytes(tensor);
        bytes[tensor.name].assign(reinterpret_cast<const char*>(values.data()), values.size());
    }
    return bytes;
}

TEST_F(LoraProgramTest, WithAFrozenAOnlyBIsTrained) {
    const auto train_frozen = [&](const std::string& out, std::vector<std::string> more, int ranks = 1) {
        more.insert(more.end(), {"--global-batch-size", "8", "--lr", "2e-2", "--weight-decay", "0.1", "--lora-freeze-a",
                                 "on", "--deterministic"});
        const auto result = train_lora(out, more, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result;
    };
    train_frozen("begin", {"--steps", "0"});
    const auto losses = member(train_frozen("out", {"--steps", "20"}).out, "loss");
    EXPECT_LT(losses.back(), 0.97 * losses.front());
    const auto begin = factors(path("begin"), ".lora_A.weight");
    EXPECT_FALSE(begin.empty());
    EXPECT_EQ(factors(path("out"), ".lora_A.weight"), begin);
    EXPECT_NE(factors(path("out"), ".lora_B.weight"), factors(path("begin"), ".lora_B.weight"));
    train_frozen("sharded", {"--steps", "20", "--sharding", "full_shard"}, 2);
    EXPECT_EQ(bytes_of("sharded") == bytes_of("out"), true);
    train_frozen("resumed", {"--steps", "20", "--save-every", "2", "--time-limit", "0.000001"});
    ASSERT_TRUE(std::filesystem::exists(path("resumed.state/state.safetensors")));
    train_frozen("resumed", {"--steps", "20", "--save-every", "2", "--resume"});
    EXPECT_EQ(bytes_of("resumed") == bytes_of("out"), true);
}

TEST_F(LoraProgramTest, AnAdapterThatLacksLayersIsNotMerged) {
    auto config = nlohmann::json::parse(read_file(path("config.json")).value());
    config["num_hidden_layers"] = 1;
    ASSERT_TRUE(write_file_atomic(path("one.json"), config.dump()).ok());
    ASSERT_EQ(run({"init", "--config", path("one.json"), "--out", path("one")}).exit_code, 0);
    ASSERT_EQ(run({"train", "--model", path("one"), "--data", path("data.safetensors"), "--out", path("adapter"),
                   "--steps", "1", "--lora-rank", "2"})
                  .exit_code,
              0);
    const auto merged = run({"merge", "--model", path("model"), "--adapter", path("adapter"), "--out", path("merged")});
    EXPECT_EQ(merged.exit_code, 2);
    EXPECT_NE(merged.err.find("model.layers.1.self_attn.q_proj.lora_A.weight\""), std::string::npos) << merged.err;
    EXPECT_FALSE(std::filesystem::exists(path("merged")));
}

// As old versions of transformers wrote them: a buffer of integers.
TEST_F(LoraProgramTest, ATensorThatSaysNothingIsLeftOutOfAMergedModel) {
    ASSERT_EQ(train_lora("adapter", {"--steps", "1"}).exit_code, 0);
    const std::vector<std::string> merge = {"merge", "--model",      path("buffers"), "--adapter", path("adapter"),
                                            "--out", path("merged"), "--save-dtype",  "fp32",      "--overwrite"};
    ASSERT_NO_FATAL_FAILURE(write_with_integers("buffers", "model.layers.0.self_attn.rotary_emb.inv_freq"));
    const auto merged = run(merge);
    EXPECT_EQ(merged.exit_code, 0) << merged.err;
    const auto file = safetensors::File::open(path("merged") + "/model.safetensors").value();
    EXPECT_EQ(file.header().find("model.layers.0.self_attn.rotary_emb.inv_freq"), nullptr);
    ASSERT_NO_FATAL_FAILURE(write_with_integers("buffers", "model.position_ids"));
    const auto refused = run(merge);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("\"model.position_ids\""), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(path("merged") + "/.saving"));
}

TEST_F(LoraProgramTest, ANewAdapterChangesNothingYet) {
    ASSERT_EQ(train_lora("out", {"--steps", "0"}).exit_code, 0);
    const auto eval = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"eval", "--model", path("model"), "--data", path("data.safetensors")};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return member(run(arguments).out, "loss").at(0);
    };
    EXPECT_EQ(eval({"--adapter", path("out")}), eval({}));
}

TEST_F(LoraProgramTest, AllShardingsAndRecomputationWriteTheSameAdapter) {
    const std::vector<std::string> steps = {"--steps", "3", "--global-batch-size", "4", "--sharding"};
    std::vector<std::string> adapters;
    for (const char* sharding : {"none", "shard_optimizer", "shard_grad_op", "full_shard"}) {
        auto flags = steps;
        flags.emplace_back(sharding);
        if (adapters.size() == 3) flags.insert(flags.end(), {"--activation-checkpointing", "full"});
        const auto result = train_lora(sharding, flags, 2);
        ASSERT_EQ(result.exit_code, 0) << result.err;
        adapters.push_back(bytes_of(sharding));
    }
    for (const std::string& bytes : adapters) EXPECT_EQ(bytes == adapters[0], true);
}

TEST_F(LoraProgramTest, DeterministicRunsWriteTheSameAdapterOnAnyNumberOfRanks) {
    const std::vector<std::string> flags = {"--steps", "3", "--global-batch-size", "4", "--deterministic"};
    ASSERT_EQ(train_lora("one", flags, 1).exit_code, 0);
    auto sharded = flags;
    sharded.insert(sharded.end(), {"--sharding", "full_shard"});
    const auto result = train_lora("two", sharded, 2);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(bytes_of("one") == bytes_of("two"), true);
}

TEST_F(LoraProgramTest, AResumedRunWritesTheSameBits) {
    const std::vector<std::string> flags = {"--steps", "6", "--global-batch-size", "4", "--save-every", "2"};
    ASSERT_EQ(train_lora("whole", flags).exit_code, 0);
    auto part = flags;
    part.insert(part.end(), {"--time-limit", "0.000001"});
    const auto stopped = train_lora("part", part);
    ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
    ASSERT_TRUE(std::filesystem::exists(path("part.state/state.safetensors")));
    auto rest = flags;
    rest.emplace_back("--resume");
    const auto other = train("part", rest);
    EXPECT_EQ(other.exit_code, 2) << "a run without adapters cannot continue one with them";
    ASSERT_EQ(train_lora("part", rest).exit_code, 0);
    EXPECT_EQ(bytes_of("part") == bytes_of("whole"), true);
}

TEST_F(LoraProgramTest, ATrainingGoesOnWithTheBaseItBeganWithAndNoOther) {
    const auto go_on = [&](const std::string& model, int ranks) {
        return run(
            {"train", "--model", path(model), "--data", path("data.safetensors"), "--out", path("out"), "--steps", "5",
             "--global-batch-size", "4", "--lora-rank", "4", "--resume", "--time-limit", kAtOnce, "--threads", "1"},
            ranks);
    };
    ASSERT_EQ(run({"init", "--config", path("config.json"), "--out", path("other"), "--seed", "2"}).exit_code, 0);
    std::filesystem::copy(path("model"), path("moved"));
    ASSERT_EQ(go_on("model", 1).exit_code, 0);
    for (const int ranks : {1, 2}) {
        const auto other = go_on("other", ranks);
        EXPECT_EQ(other.exit_code, 2);
        EXPECT_NE(other.err.find("model.sha256"), std::string::npos) << other.err;
    }
    const auto moved = go_on("moved", 2);
    EXPECT_EQ(moved.exit_code, 0) << moved.err;
    EXPECT_EQ(lines_of(moved.out).back()["steps"], 2);
}

TEST_F(LoraProgramTest, AnAdapterOnOtherWeightsThanItsOwnIsUsedWithAWarning) {
    ASSERT_EQ(run({"init", "--config", path("config.json"), "--out", path("other"), "--seed", "2"}).exit_code, 0);
    std::filesystem::copy(path("model"), path("moved"));
    const std::vector<std::string> sharded = {"--sharding", "full_shard"};
    ASSERT_EQ(train_lora("adapter", {"--steps", "1", "--sharding", "full_shard"}, 2).exit_code, 0);

    const auto warning = [&](const std::string& command, const std::string& model, std::vector<std::string> flags,
                             int ranks) {
        flags.insert(flags.begin(), {command, "--model", path(model), "--adapter", path("adapter")});
        const auto result = run(flags, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const std::string begin = "atoll-trainer " + command + ": ";  // mpirun may say something of its own before
        const std::size_t at = result.err.find(begin);
        return at == std::string::npos ? std::string() : result.err.substr(at + begin.size());
    };
    const std::vector<std::string> data = {"--data", path("data.safetensors"), "--threads", "1"};
    const auto eval = [&](const std::string& model, const std::vector<std::string>& more, int ranks) {
        auto flags = data;
        flags.insert(flags.end(), more.begin(), more.end());
        return warning("eval", model, flags, ranks);
    };
    const auto go_on = [&](const std::string& model, const std::string& out, int ranks) {
        auto flags = data;
        flags.insert(flags.end(), {"--steps", "1", "--global-batch-size", "2", "--out", path(out)});
        return warning("train", model, flags, ranks);
    };
    const std::string told = eval("other", {}, 1);
    for (const char* name : {"model", "other"}) EXPECT_NE(told.find(path(name)), std::string::npos) << told;
    EXPECT_EQ(std::ranges::count(told, '\n'), 1) << told;
    EXPECT_EQ(eval("other", sharded, 2), told);
    EXPECT_EQ(go_on("other", "on other", 2), told);
    EXPECT_EQ(warning("merge", "other", {"--out", path("merged")}, 1), told);
    const auto generated = run({"generate", "--prompt", "a", "--model", path("other"), "--adapter", path("adapter")});
    EXPECT_TRUE(generated.err.starts_with("atoll-trainer generate: " + told))
        << generated.err;  // the model has no tokenizer

    EXPECT_EQ(eval("moved", {}, 1), "");
    EXPECT_EQ(eval("moved", sharded, 2), "");
    EXPECT_EQ(go_on("moved", "on moved", 2), "");
    EXPECT_EQ(warning("merge", "moved", {"--out", path("merged"), "--overwrite"}, 1), "");
    EXPECT_NE(eval("moved", {"--quantize", "int8"}, 1).find("--quantize none"), std::string::npos);
}

TEST_F(LoraProgramTest, AnAdapterThatGoesOnIsOfTheBaseItWasLastTrainedOn) {
    ASSERT_EQ(run({"init", "--config", path("config.json"), "--out", path("other"), "--seed", "2"}).exit_code, 0);
    ASSERT_EQ(train_lora("adapter", {"--steps", "1"}).exit_code, 0);
    const auto train_on_other = [&](const std::string& adapter, const std::string& out) {
        return run({"train", "--model", path("other"), "--data", path("data.safetensors"), "--steps", "1", "--adapter",
                    path(adapter), "--out", path(out)});
    };
    EXPECT_NE(train_on_other("adapter", "next").err, "");
    const auto last = train_on_other("next", "last");
    EXPECT_EQ(last.exit_code, 0);
    EXPECT_EQ(last.err, "");
}

TEST_F(LoraProgramTest, AHeadThatIsTheEmbeddingsMatrixHasNoAdapter) {
    take("");
    const auto result = run({"train", "--model", path("golden"), "--data", path("golden.safetensors"), "--out",
                             path("out"), "--steps", "1", "--lora-rank", "2", "--lora-targets", "lm_head"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("'lm_head'"), std::string::npos) << result.err;
}

TEST_F(LoraProgramTest, WhatMakesNoSenseIsRefusedByName) {
    ASSERT_EQ(train_lora("adapter", {"--steps", "0"}).exit_code, 0);
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{"--lora-alpha", "4"}, "--lora-alpha"},
        {{"--lora-targets", "q_proj"}, "--lora-targets"},
        {{"--lora-rank", "2", "--lora-targets", "embed_tokens"}, "embed_tokens"},
        {{"--lora-rank", "2", "--lora-targets", "q_proj,all-linear"}, "all-linear"},
        {{"--adapter", path("nowhere")}, "--adapter"},
        {{"--lora-rank", "2", "--lora-alpha", "0"}, "--lora-alpha"},
        {{"--adapter", path("adapter"), "--lora-rank", "8"}, "--lora-rank"},
    };
    for (const auto& [flags, named] : cases) {
        auto all = flags;
        all.insert(all.end(), {"--steps", "1"});
        const auto result = train("out", all);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
    }
}

}  // namespace
}  // namespace atl::program
