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
    const auto size = init_model(options_);
    ASSERT_TRUE(size.ok()) << size.error().message;
    EXPECT_EQ(to_json_line(*size),
              nlohmann::ordered_json({{"parameters", size->parameters}, {"bytes", size->bytes}}).dump());
    EXPECT_EQ(size->bytes, 2 * size->parameters) << "fp16";
    const auto file = safetensors::File::open(options_.out / "model.safetensors").value();
    EXPECT_EQ(size->bytes, file.header().data_size);
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

TEST_F(InitTest, ATokenizerMuchSmallerThanTheVocabularyIsToldAndUsualPaddingIsNot) {
    const auto warning = [&](int vocab_size) {
        write_config({{"vocab_size", vocab_size}});
        testing::internal::CaptureStderr();
        EXPECT_TRUE(init_model(options_).ok());
        return testing::internal::GetCapturedStderr();
    };
    EXPECT_EQ(warning(480), "");
    EXPECT_EQ(warning(512), "");
    const std::string told = warning(8000);
    for (const char* part : {"tiny.json: ", "vocab_size is 8000", "480 tokens", "--vocab-size 8000"})
        EXPECT_NE(told.find(part), std::string::npos) << part << " is not in: " << told;
}

TEST_F(InitTest, AModelWithoutRoomIsRefusedBeforeAByteIsWritten) {
    constexpr int kLargest = 1 << 24;
    write_config(
        {{"hidden_size", kLargest}, {"intermediate_size", kLargest}, {"head_dim", 8}, {"num_hidden_layers", 8}});
    const auto status = init_model(options_);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInsufficientStorage);
    EXPECT_EQ(status.error().field, "--out");
    for (const char* part : {" free", " parameters need ", " PiB"})
        EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
    EXPECT_FALSE(std::filesystem::exists(options_.out));
}

TEST_F(InitTest, AConfigOrTokenizerThatCannotWorkIsRefusedByFlagFileAndKey) {
    const auto refusal = [&] { return describe(init_model(options_).error()); };
    const std::string config = "--config: " + options_.config.string();
    write_config({{"vocab_size", 479}});
    EXPECT_EQ(refusal().find(config + ": vocab_size is 479, but "), 0) << refusal();
    write_config({{"num_attention_heads", 3}});
    EXPECT_EQ(refusal().find(config + ": num_attention_heads must divide "), 0) << refusal();
    write_config({{"model_type", "mamba"}, {"architectures", {"MambaForCausalLM"}}});
    EXPECT_EQ(refusal().find(config + ": model_type 'mamba' is not built"), 0) << refusal();
    ASSERT_TRUE(write_file_atomic(options_.config, "{").ok());
    EXPECT_EQ(refusal().find(config + " is not valid JSON"), 0) << refusal();
    write_config({});
    options_.tokenizer = "nowhere";
    EXPECT_EQ(refusal(), "--tokenizer: there is no 'nowhere'");
    options_.config = directory_.path() / "missing.json";
    EXPECT_EQ(init_model(options_).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(init_model(options_).error().field, "--config");
    EXPECT_FALSE(std::filesystem::exists(options_.out));
}

}  // namespace
}  // namespace atl::weights
