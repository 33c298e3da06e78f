#include "trainer/weights/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"

namespace atl::weights {
namespace {

const std::filesystem::path kTokenizer = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers/small";

class InitTest : public testing::Test {
  protected:
    InitTest() {
        options_.config = directory_.path() / "tiny.json";
        options_.tokenizer = kTokenizer;
        options_.out = directory_.path() / "out";
        options_.seed = 7;
        write_config({});
    }
    void write_config(const std::vector<std::pair<const char*, nlohmann::json>>& changes) {
        nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"vocab_size", 480},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 24},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"num_key_value_heads", 1},
                                 {"max_position_embeddings", 64},
                                 {"rms_norm_eps", 1e-5},
                                 {"hidden_act", "silu"},
                                 {"initializer_range", 0.02},
                                 {"torch_dtype", "float16"}};
        for (const auto& [key, value] : changes) config[key] = value;
        ASSERT_TRUE(write_file_atomic(options_.config, config.dump()).ok());
    }
    std::string weights() const { return read_file(options_.out / "model.safetensors").value(); }

    TemporaryDirectory directory_;
    InitOptions options_;
};

TEST_F(InitTest, AModelDirectoryWithTheConfigsDtypeAndTheTokenizerComesOut) {
    const Status status = init_model(options_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(read_file(options_.out / "config.json").value(), read_file(options_.config).value());
    EXPECT_EQ(read_file(options_.out / "tokenizer.model").value(), read_file(kTokenizer / "tokenizer.model").value());
    const auto reader = WeightReader::open(options_.out);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_EQ(reader->dtype("model.layers.1.mlp.down_proj.weight").value(), DType::kF16);
    std::vector<float> values(480 * 16);
    ASSERT_TRUE(reader->read("model.embed_tokens.weight", 0, 480 * 16, values).ok());
    double sum_of_squares = 0;
    for (const float value : values) sum_of_squares += static_cast<double>(value) * value;
    EXPECT_NEAR(std::sqrt(sum_of_squares / values.size()), 0.02, 0.001);
}

TEST_F(InitTest, TheSeedDecidesTheBytes) {
    ASSERT_TRUE(init_model(options_).ok());
    const std::string first = weights();
    ASSERT_TRUE(init_model(options_).ok());
    EXPECT_EQ(weights(), first);
    options_.seed = 8;
    ASSERT_TRUE(init_model(options_).ok());
    EXPECT_NE(weights(), first);
}

TEST_F(InitTest, AnotherDtypeIsWrittenIntoTheConfigToo) {
    options_.dtype = DType::kBF16;
    ASSERT_TRUE(init_model(options_).ok());
    EXPECT_EQ(nlohmann::json::parse(read_file(options_.out / "config.json").value())["torch_dtype"], "bfloat16");
}

TEST_F(InitTest, AConfigThatCannotWorkIsRefusedByName) {
    write_config({{"vocab_size", 479}});
    EXPECT_EQ(init_model(options_).error().field, "vocab_size") << "the tokenizer has 480 ids";
    write_config({{"model_type", "mamba"}, {"architectures", {"MambaForCausalLM"}}});
    EXPECT_NE(init_model(options_).error().message.find("tiny.json"), std::string::npos);
    options_.config = directory_.path() / "missing.json";
    EXPECT_EQ(init_model(options_).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(init_model(options_).error().field, "--config");
    EXPECT_FALSE(std::filesystem::exists(options_.out));
}

}  // namespace
}  // namespace atl::weights
