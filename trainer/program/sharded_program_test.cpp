// Evaluation and generation on several ranks, as users run them: what one rank says, whatever the sharding.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

struct Sharded {
    int ranks;
    std::vector<std::string> flags;
};

const std::vector<Sharded>& shardings() {
    static const std::vector<Sharded> all = {
        {2, {"--sharding", "none"}},
        {2, {"--sharding", "shard_optimizer"}},
        {2, {"--sharding", "shard_grad_op"}},
        {2, {"--sharding", "full_shard"}},
        {4, {"--sharding", "full_shard", "--broadcast-from-rank0"}},
        {4, {"--sharding", "hybrid_shard", "--shard-group", "2"}},
        {4, {"--sharding", "hybrid_shard_zero2", "--shard-group", "2"}},
    };
    return all;
}

// One for each way in which ranks keep the weights: whole, a shard of all, a shard of a group.
const std::vector<Sharded>& ways_to_keep_weights() {
    static const std::vector<Sharded> all = {shardings()[0], shardings()[4], shardings()[5]};
    return all;
}

class ShardedProgramTest : public ProgramTest {
  protected:
    ShardedProgramTest() {
        init_with_tokenizer("llama", path("config.json"),
                            {{"max_position_embeddings", 40}, {"initializer_range", 0.3}});
        init_with_tokenizer("opt", ATOLL_GOLDEN_DIR "/training/opt/config.json",
                            {{"max_position_embeddings", 40}, {"init_std", 0.3}});
        const std::string adapter = "adapter";
        EXPECT_EQ(
            run({"train", "--model", path("llama"), "--data", path("data.safetensors"), "--out", path(adapter),
                 "--steps", "10", "--global-batch-size", "4", "--lr", "5e-2", "--lora-rank", "2", "--threads", "1"})
                .exit_code,
            0);
    }

    // Random weights, so large that the likeliest token is not always the same, and a vocabulary of bytes and more.
    void init_with_tokenizer(const std::string& model, const std::string& from, const nlohmann::json& changes) const {
        const auto text = read_file(from);
        auto config = nlohmann::json::parse(text.ok() ? *text : "{}");
        config.update({{"vocab_size", 480}, {"torch_dtype", "float32"}});
        config.update(changes);
        EXPECT_TRUE(write_file_atomic(path(model + ".json"), config.dump()).ok());
        const auto made = run({"init", "--config", path(model + ".json"), "--tokenizer",
                               ATOLL_FIXTURES "/tokenizers/small", "--out", path(model), "--seed", "4"});
        EXPECT_EQ(made.exit_code, 0) << made.err;
    }

    std::string text(std::vector<std::string> flags, int ranks = 1) const {
        flags.insert(flags.begin(), {"generate", "--prompt", "ab c", "--max-tokens", "20", "--threads", "1"});
        const auto result = run(flags, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result.out;
    }
    // 21 rows, the later ones with fewer targets: no two ranks have as many, and the last of four has none.
    void write_uneven_rows() const {
        std::vector<std::int32_t> ids, labels;
        for (std::int32_t row = 0; row < 21; ++row) {
            for (std::int32_t t = 0; t < 16; ++t) {
                ids.push_back((row * 7 + t * t) % 90);
                labels.push_back(t < row / 2 ? -100 : ids.back());
            }
        }
        write_data("uneven.safetensors", 16, {{"input_ids", ids}, {"labels", labels}});
    }
    double loss(std::vector<std::string> flags, int ranks = 1) const {
        flags.insert(flags.begin(), {"eval", "--data", path("uneven.safetensors"), "--threads", "1"});
        const auto result = run(flags, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return member(result.out, "loss").at(0);
    }
    static std::vector<std::string> join(std::vector<std::string> a, const std::vector<std::string>& b) {
        a.insert(a.end(), b.begin(), b.end());
        return a;
    }
};

TEST_F(ShardedProgramTest, EveryShardingGeneratesTheTextOfOneRank) {
    const std::vector<std::vector<std::string>> cases = {
        {"--model", path("llama")},
        {"--model", path("llama"), "--temperature", "1.5", "--top-p", "0.9", "--seed", "7"},
        {"--model", path("llama"), "--adapter", path("adapter")},
        {"--model", path("opt"), "--temperature", "2", "--seed", "3"},
        {"--model", path("llama"), "--quantize", "nf4", "--precision", "bf16"},
    };
    std::vector<std::string> texts;
    for (const auto& flags : cases) {
        const bool is_first = texts.empty();
        texts.push_back(text(flags));
        for (const Sharded& sharded : is_first ? shardings() : ways_to_keep_weights()) {
            EXPECT_EQ(text(join(flags, sharded.flags), sharded.ranks), texts.back())
                << sharded.ranks << sharded.flags[1];
        }
    }
    std::ranges::sort(texts);
    EXPECT_EQ(std::ranges::unique(texts).begin(), texts.end()) << "the cases differ";
}

TEST_F(ShardedProgramTest, EveryShardingHasTheLossOfOneRank) {
    write_uneven_rows();
    const std::vector<std::vector<std::string>> cases = {
        {"--model", path("llama")},
        {"--model", path("llama"), "--adapter", path("adapter")},
        {"--model", path("opt")},
    };
    for (const auto& flags : cases) {
        const double one = loss(flags), exact = loss(join(flags, {"--deterministic"}));
        EXPECT_NEAR(one / exact, 1, 1e-6);
        for (const Sharded& sharded : shardings()) {
            EXPECT_NEAR(loss(join(flags, sharded.flags), sharded.ranks) / one, 1, 1e-6) << sharded.flags[1];
        }
        EXPECT_EQ(loss(join(flags, {"--deterministic", "--sharding", "full_shard"}), 4), exact);
    }
    EXPECT_GT(std::abs(loss(cases[0]) / loss(cases[1]) - 1), 1e-4) << "the adapter says nothing";
}

TEST_F(ShardedProgramTest, ATextEndsAtATokenOfTheGenerationConfig) {
    const std::string whole = text({"--model", path("llama")});
    nlohmann::json every = nlohmann::json::array();
    for (int id = 0; id < 480; ++id) every.push_back(id);
    const std::string config = path("llama") + "/generation_config.json";
    ASSERT_TRUE(write_file_atomic(config, nlohmann::json{{"eos_token_id", every}}.dump()).ok());
    for (const int ranks : {1, 2}) EXPECT_EQ(text({"--model", path("llama")}, ranks), "\n");
    ASSERT_TRUE(write_file_atomic(config, R"({"eos_token_id": 479})").ok());
    EXPECT_EQ(text({"--model", path("llama")}), whole);
}

TEST_F(ShardedProgramTest, AnErrorOnSeveralRanksIsSaidOnce) {
    const auto result = run({"generate", "--model", path("llama"), "--prompt", "ab", "--max-tokens", "5000"}, 2);
    EXPECT_EQ(result.exit_code, 2);
    const auto at = result.err.find("--max-tokens: ");
    ASSERT_NE(at, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("--max-tokens: ", at + 1), std::string::npos) << result.err;
    EXPECT_EQ(run({"generate", "--model", path("llama"), "--prompt", "ab", "--sharding", "full"}).exit_code, 2);
}

}  // namespace
}  // namespace atl::program
