// What runs of models of their real size need of a GPU that is not here. Only config.json and a few rows are there.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

const nlohmann::json kLlama2 = {{"architectures", {"LlamaForCausalLM"}},
                                {"model_type", "llama"},
                                {"vocab_size", 32000},
                                {"hidden_size", 4096},
                                {"intermediate_size", 11008},
                                {"num_hidden_layers", 32},
                                {"num_attention_heads", 32},
                                {"num_key_value_heads", 32},
                                {"max_position_embeddings", 4096},
                                {"rms_norm_eps", 1e-5},
                                {"rope_theta", 10000.0},
                                {"hidden_act", "silu"},
                                {"tie_word_embeddings", false}};
const nlohmann::json kLlama3 = {{"architectures", {"LlamaForCausalLM"}},
                                {"model_type", "llama"},
                                {"vocab_size", 128256},
                                {"hidden_size", 4096},
                                {"intermediate_size", 14336},
                                {"num_hidden_layers", 32},
                                {"num_attention_heads", 32},
                                {"num_key_value_heads", 8},
                                {"max_position_embeddings", 8192},
                                {"rms_norm_eps", 1e-5},
                                {"rope_theta", 500000.0},
                                {"hidden_act", "silu"},
                                {"tie_word_embeddings", false}};
constexpr double kLlama2Parameters = 6'738'415'616, kLlama3Parameters = 8'030'261'248;

using Flags = std::vector<std::string>;
// bf16 throughout, rounded stochastically.
const Flags kStochastic = {"--precision", "bf16", "--masters", "none", "--moments-dtype", "bf16"};

class CardPlanTest : public ProgramTest {
  protected:
    CardPlanTest() {
        write_model("llama2", kLlama2);
        write_model("llama3", kLlama3);
        for (const std::int64_t length : {2048, 4096, 8192}) {
            std::vector<std::int32_t> ids(static_cast<std::size_t>(8 * length), 1);
            write_data(rows(length), length, {{"input_ids", std::move(ids)}});
        }
    }
    void write_model(const std::string& name, const nlohmann::json& config) const {
        std::filesystem::create_directory(path(name));
        EXPECT_TRUE(write_file_atomic(path(name) + "/config.json", config.dump()).ok());
    }
    static std::string rows(std::int64_t length) { return std::to_string(length) + ".safetensors"; }
    // On a machine with 1 TB for the host's part, so that the card's decides.
    CommandResult plan(const std::string& card, const std::string& model, std::int64_t length, Flags flags,
                       std::int64_t ranks = 1) const {
        const Flags first = {"plan",
                             "--device",
                             "cuda",
                             "--card",
                             card,
                             "--model",
                             path(model),
                             "--data",
                             path(rows(length)),
                             "--ranks",
                             std::to_string(ranks),
                             "--memory-bytes",
                             "1000000000000"};
        flags.insert(flags.begin(), first.begin(), first.end());
        return run(flags);
    }
    static nlohmann::json line_of(const CommandResult& planned) {
        const auto lines = lines_of(planned.out);
        return lines.empty() ? nlohmann::json() : lines.front();
    }
    // What a rank takes of the card, beside what the backend keeps.
    static double device_bytes(const nlohmann::json& line) {
        return line.value("allocated_bytes", 0.0) - line.value("pinned_bytes", 0.0);
    }
};

TEST_F(CardPlanTest, Of7BInBf16IsToTheByte) {
    const auto planned = plan("h100", "llama2", 4096, kStochastic);
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const auto line = line_of(planned);
    EXPECT_EQ(line["device"], "cuda");
    EXPECT_EQ(line["card"], "h100");
    EXPECT_EQ(line["fits"], true);
    EXPECT_EQ(line["weights_bytes"], 2 * kLlama2Parameters);
    EXPECT_EQ(line["moments_bytes"], 4 * kLlama2Parameters);
    EXPECT_EQ(line["gradients_bytes"], 4 * kLlama2Parameters);
    EXPECT_EQ(line["masters_bytes"], 0);
    EXPECT_EQ(line["activations_bytes"], 12'298'764'288);  // 94 kB a token and layer
    EXPECT_EQ(line["workspace_bytes"], 338'913'472);
    EXPECT_EQ(line["allocated_bytes"], 80'021'833'920);
    EXPECT_EQ(line["pinned_bytes"], 180'672);
    EXPECT_EQ(line["backend_bytes"], 67'114'056);
    EXPECT_EQ(line["device_total_bytes"], 84'927'315'968);
    EXPECT_EQ(line["driver_bytes"], 562'036'736);
    EXPECT_EQ(line["device_available_bytes"], 84'927'315'968 - 562'036'736 - 67'114'056 - 64'000'000);
    EXPECT_EQ(line["attention_from"], "cuDNN 9.19.0's plans for this card");
}

// What fits which card, each to the byte of what it takes there.
TEST_F(CardPlanTest, OfModelsOfTheirRealSizeSaysWhatFits) {
    const Flags lora = {"--precision", "bf16", "--lora-rank", "16", "--lora-targets", "all-linear"};
    Flags qlora = lora;
    qlora.insert(qlora.end(), {"--quantize", "nf4", "--activation-checkpointing", "full"});
    const Flags sharded = {
        "--precision",     "bf16", "--sharding", "full_shard", "--activation-checkpointing", "all-but-attention",
        "--moments-dtype", "bf16"};
    struct Case {
        const char* card;
        const char* model;
        std::int64_t length;
        Flags flags;
        std::int64_t ranks;
        double bytes;
        bool fits;
    };
    for (const Case& one : {Case{"a100-80", "llama2", 4096, kStochastic, 1, 80'008'069'312, true},
                            {"a100-64", "llama2", 4096, kStochastic, 1, 80'008'069'312, false},
                            {"h100", "llama2", 4096, {"--precision", "bf16"}, 1, 133'928'978'176, false},
                            {"h100", "llama3", 8192, kStochastic, 1, 105'912'665'856, false},
                            {"h200", "llama3", 8192, kStochastic, 1, 105'912'665'856, true},
                            {"h100", "llama3", 8192, lora, 1, 42'401'433'344, true},
                            {"l4", "llama3", 2048, qlora, 1, 7'664'464'064, true},
                            {"a100-40", "llama3", 8192, sharded, 4, 38'578'387'456, true}}) {
        SCOPED_TRACE(std::string(one.card) + " " + one.model);
        const auto planned = plan(one.card, one.model, one.length, one.flags, one.ranks);
        EXPECT_EQ(planned.exit_code, one.fits ? 0 : 3) << planned.err;
        const auto line = line_of(planned);
        EXPECT_EQ(line.value("fits", !one.fits), one.fits);
        EXPECT_EQ(device_bytes(line), one.bytes);
        EXPECT_EQ(one.bytes <= line.value("device_available_bytes", 0.0), one.fits);
    }
}

// 8B of 8192 tokens: gradients are fp32, so that the optimizer's states alone take 80 GB.
TEST_F(CardPlanTest, WhatDoesNotFitIsToldTheNearestThatDoes) {
    const auto refused = plan("h100", "llama3", 8192, kStochastic);
    ASSERT_EQ(refused.exit_code, 3);
    EXPECT_NE(refused.err.find("this run needs 98.6 GiB of its GPU's memory a rank and 78.4 GiB are free there; the "
                               "nearest that fits: --sharding none --batch-size 1 --grad-accum 1 "
                               "--activation-checkpointing full (78.3 GiB of the GPU, "),
              std::string::npos)
        << refused.err;
    Flags nearest = kStochastic;
    nearest.insert(nearest.end(), {"--activation-checkpointing", "full"});
    EXPECT_EQ(plan("h100", "llama3", 8192, nearest).exit_code, 0);
    const auto small = plan("l40s", "llama3", 8192, kStochastic);
    ASSERT_EQ(small.exit_code, 3);
    EXPECT_NE(
        small.err.find("--offload-params cpu --offload-optimizer cpu (41.5 GiB of the GPU, 44.9 GiB of the host)"),
        std::string::npos)
        << small.err;
}

TEST_F(CardPlanTest, SaysHowAttentionsWorkspaceIsKnown) {
    const auto from = [&](const std::string& card, Flags flags) {
        return line_of(plan(card, "llama2", 4096, std::move(flags))).value("attention_from", "");
    };
    EXPECT_EQ(from("a100-64", kStochastic),
              "cuDNN 9.19.0's plans for an A100, which this card resembles by its data sheet");
    EXPECT_EQ(from("h200", kStochastic),
              "cuDNN 9.19.0's plans for an H100, which this card resembles by its data sheet");
    EXPECT_EQ(from("l4", kStochastic), "cuDNN 9.19.0's plans for an L40S, which this card resembles by its data sheet");
    EXPECT_EQ(from("h100", {}), "matrix products, exactly") << "fp32";
    Flags deterministic = kStochastic;
    deterministic.emplace_back("--deterministic");
    EXPECT_EQ(from("h100", deterministic), "matrix products, exactly");
}

TEST_F(CardPlanTest, CardsThatAreNotKnownOrTooOldAreRefused) {
    const auto unknown = plan("h1000", "llama2", 4096, {});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.err.find("--card: 'h1000' is not known; known are h100, "), std::string::npos) << unknown.err;
    const auto old = plan("v100", "llama2", 4096, {});
    EXPECT_EQ(old.exit_code, 2);
    EXPECT_NE(old.err.find("it is sm_70, which CUDA 13 no longer compiles for"), std::string::npos) << old.err;
}

TEST_F(CardPlanTest, ACardIsNvidias) {
    const Flags flags = {"plan", "--model", path("llama2"), "--data", path(rows(4096)), "--card", "h100"};
    Flags of_hip = flags;
    of_hip.insert(of_hip.end(), {"--device", "hip"});
    for (const Flags& one : {flags, of_hip}) {
        const auto refused = run(one);
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_NE(refused.err.find("--card: means nothing without --device cuda"), std::string::npos) << refused.err;
    }
    const auto trained = run({"train", "--model", path("model"), "--data", path("data.safetensors"), "--out",
                              path("out"), "--device", "cuda", "--card", "h100"});
    EXPECT_EQ(trained.exit_code, 2) << "which runs where the card is";
}

}  // namespace
}  // namespace atl::program
