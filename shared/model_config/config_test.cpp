#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "shared/base/file.h"
#include "shared/model_config/model_config.h"

namespace atl::model_config {
namespace {

using nlohmann::json;

json version5() {
    return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100,
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
        "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "tie_word_embeddings": true, "dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2, 3],
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "transformers_version": "5.23.0"})");
}

TEST(ConfigTest, ReadsTheDialectOfVersionFive) {
    const ModelConfig config = parse_config(version5().dump()).value();
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.num_key_value_heads, 2);
    EXPECT_EQ(config.dtype, safetensors::DType::kBF16);
    EXPECT_EQ(config.rope.theta, 5000.0);
    EXPECT_TRUE(config.tie_word_embeddings);
    EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{2, 3}));
}

TEST(ConfigTest, ReadsTheDialectOfVersionFour) {
    json object = version5();
    object.erase("rope_parameters");
    object.erase("dtype");
    object.erase("head_dim");
    object.erase("num_key_value_heads");
    object["torch_dtype"] = "float16";
    object["rope_theta"] = 7000.0;
    object["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
    object["eos_token_id"] = 2;
    const ModelConfig config = parse_config(object.dump()).value();
    EXPECT_EQ(config.head_dim, 8);
    EXPECT_EQ(config.num_key_value_heads, 4);
    EXPECT_EQ(config.dtype, safetensors::DType::kF16);
    EXPECT_EQ(config.rope.kind, RopeKind::kLinear);
    EXPECT_EQ(config.rope.theta, 7000.0);
    EXPECT_EQ(config.rope.factor, 2.0);
    EXPECT_FLOAT_EQ(config.rope_frequencies()[0], 0.5F);
}

// What transformers 5.23 computes for this configuration (head_dim 16) and sequences of 48, 64 and 200 tokens.
TEST(ConfigTest, DynamicFrequenciesFollowTheLengthBeyondTheContext) {
    json object = version5();
    object["rope_parameters"] = {{"rope_type", "dynamic"}, {"rope_theta", 5000.0}, {"factor", 2.0}};
    const ModelConfig config = parse_config(object.dump()).value();
    EXPECT_EQ(config.rope.kind, RopeKind::kDynamic);
    EXPECT_EQ(config.rope_frequencies(48), config.rope_frequencies(64));
    EXPECT_NEAR(config.rope_frequencies(64)[5], 0.004876898602, 1e-8);
    EXPECT_NEAR(config.rope_frequencies(200)[5], 0.001491915551, 1e-8);
    EXPECT_FALSE(config.rotation_depends_on(64));
    EXPECT_TRUE(config.rotation_depends_on(65));
}

TEST(ConfigTest, BothDialectsOfEveryRotaryScalingAreTheSame) {
    for (const json& scaling : {json{{"rope_type", "default"}}, json{{"rope_type", "linear"}, {"factor", 4.0}},
                                json{{"rope_type", "dynamic"}, {"factor", 2.0}},
                                json{{"rope_type", "llama3"},
                                     {"factor", 8.0},
                                     {"low_freq_factor", 1.0},
                                     {"high_freq_factor", 4.0},
                                     {"original_max_position_embeddings", 16}},
                                json{{"rope_type", "yarn"},
                                     {"factor", 4.0},
                                     {"original_max_position_embeddings", 16},
                                     {"beta_fast", 16.0},
                                     {"mscale", 1.0},
                                     {"mscale_all_dim", 0.8},
                                     {"truncate", false}}}) {
        json five = version5(), four = version5();
        five["rope_parameters"] = scaling;
        five["rope_parameters"]["rope_theta"] = 7000.0;
        four.erase("rope_parameters");
        four["rope_theta"] = 7000.0;
        four["rope_scaling"] = scaling;
        const auto expected = parse_config(five.dump()).value().rope_frequencies(100);
        EXPECT_EQ(parse_config(four.dump()).value().rope_frequencies(100), expected) << scaling;
        four["rope_scaling"]["type"] = four["rope_scaling"]["rope_type"];
        four["rope_scaling"].erase("rope_type");
        EXPECT_EQ(parse_config(four.dump()).value().rope_frequencies(100), expected) << "type of " << scaling;
    }
}

struct Wrong {
    const char* field;  // what the error must name
    json change;        // merged into the configuration; null removes a key
};

void PrintTo(const Wrong& wrong, std::ostream* out) {
    *out << wrong.field << " " << wrong.change.dump();
}

class WrongConfigTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongConfigTest, IsRefusedByName) {
    json object = version5();
    object.merge_patch(GetParam().change);
    const auto config = parse_config(object.dump());
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(config.error().field, GetParam().field) << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongConfigTest,
    ::testing::Values(
        Wrong{"architectures", {{"architectures", {"MambaForCausalLM"}}}},
        Wrong{"model_type", {{"architectures", {"MistralForCausalLM"}}}},
        Wrong{"model_type", {{"architectures", nullptr}, {"model_type", "gpt2"}}},
        Wrong{"model_type", {{"model_type", "mistral"}}}, Wrong{"model_type", {{"model_type", 1}}},
        Wrong{"attention_bias", {{"attention_bias", true}}}, Wrong{"mlp_bias", {{"mlp_bias", true}}},
        Wrong{"rope_interleaved", {{"rope_interleaved", true}}}, Wrong{"hidden_act", {{"hidden_act", "gelu"}}},
        Wrong{"attention_dropout", {{"attention_dropout", 0.1}}}, Wrong{"pretraining_tp", {{"pretraining_tp", 2}}},
        Wrong{"sliding_window", {{"sliding_window", 128}}},
        Wrong{"quantization_config", {{"quantization_config", {{"bits", 4}}}}},
        Wrong{"rope_parameters.factor", {{"rope_parameters", {{"rope_type", "yarn"}}}}},
        Wrong{"rope_parameters.beta_fast",
              {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}, {"beta_fast", 1.0}, {"beta_slow", 2.0}}}}},
        Wrong{"rope_parameters.mscale", {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}, {"mscale", 0}}}}},
        Wrong{"rope_parameters.truncate",
              {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", 1}}}}},
        Wrong{"rope_parameters.rope_theta",
              {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}, {"rope_theta", 1.0}}}}},
        Wrong{"rope_parameters.low_freq_factor",
              {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}, {"low_freq_factor", 1.0}}}}},
        Wrong{"rope_parameters.beta_fast",
              {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32.0}}}}},
        Wrong{"rope_parameters.rope_type", {{"rope_parameters", {{"rope_type", "longrope"}}}}},
        Wrong{"rope_parameters.rope_type",
              {{"head_dim", 2}, {"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}},
        Wrong{"rope_scaling", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}},
        Wrong{"rope_parameters.factor", {{"rope_parameters", {{"rope_type", "dynamic"}}}}},
        Wrong{"rope_parameters.factor", {{"rope_parameters", {{"rope_type", "linear"}}}}},
        Wrong{"rope_parameters.partial_rotary_factor", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}},
        Wrong{"vocab_size", {{"vocab_size", nullptr}}}, Wrong{"vocab_size", {{"vocab_size", 1.5}}},
        Wrong{"hidden_size", {{"hidden_size", -4}}}, Wrong{"hidden_size", {{"hidden_size", 18446744073709551615ULL}}},
        Wrong{"num_hidden_layers", {{"num_hidden_layers", "two"}}},
        Wrong{"num_hidden_layers", {{"num_hidden_layers", 4097}}}, Wrong{"head_dim", {{"head_dim", 7}}},
        Wrong{"num_key_value_heads", {{"num_key_value_heads", 3}}},
        Wrong{"num_attention_heads", {{"head_dim", nullptr}, {"num_attention_heads", 5}, {"num_key_value_heads", 5}}},
        Wrong{"rms_norm_eps", {{"rms_norm_eps", 0}}}, Wrong{"dtype", {{"dtype", "float8"}}},
        Wrong{"eos_token_id", {{"eos_token_id", "</s>"}}}));

// As transformers 5 has them: how much cosines and sines grow.
TEST(ConfigTest, YarnsAttentionFactorIsGivenOrFollowsFromTheScales) {
    const auto factor = [](const json& more) {
        json object = version5();
        object["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 5000.0}, {"factor", 4.0}};
        object["rope_parameters"].update(more);
        return parse_config(object.dump()).value().rope.attention_factor;
    };
    const double plain = 0.1 * std::log(4.0) + 1;
    EXPECT_DOUBLE_EQ(factor(json::object()), plain);
    EXPECT_DOUBLE_EQ(factor({{"attention_factor", 0.5}, {"mscale", 2.0}, {"mscale_all_dim", 1.0}}), 0.5);
    EXPECT_DOUBLE_EQ(factor({{"mscale", 2.0}, {"mscale_all_dim", 1.0}}), (0.2 * std::log(4.0) + 1) / plain);
    EXPECT_DOUBLE_EQ(factor({{"mscale", 2.0}}), plain) << "one of the two alone means nothing";
    EXPECT_DOUBLE_EQ(factor({{"factor", 1.0}}), 1.0);
}

TEST(ConfigTest, YarnsContextOfPretrainingIsTheModelsWhereNothingIsSaid) {
    json object = version5();
    object["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 50.0}, {"factor", 4.0}};
    const auto said_nothing = parse_config(object.dump()).value();
    EXPECT_EQ(said_nothing.rope.original_max_position_embeddings, 64);
    object["rope_parameters"]["original_max_position_embeddings"] = 16;
    EXPECT_NE(parse_config(object.dump()).value().rope_frequencies(), said_nothing.rope_frequencies());
}

// facebook/opt-125m's config.json.
json opt() {
    return json::parse(R"({"_name_or_path": "opt-125m", "_remove_final_layer_norm": false, "activation_dropout": 0.0,
        "activation_function": "relu", "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2,
        "do_layer_norm_before": true, "dropout": 0.1, "eos_token_id": 2, "ffn_dim": 3072, "hidden_size": 768,
        "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048, "model_type": "opt",
        "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>",
        "torch_dtype": "float16", "transformers_version": "4.21.0.dev0", "use_cache": true, "vocab_size": 50272,
        "word_embed_proj_dim": 768})");
}

TEST(ConfigTest, ReadsOpt) {
    const ModelConfig config = parse_config(opt().dump()).value();
    EXPECT_EQ(config.architecture.model_type, "opt");
    EXPECT_EQ(config.intermediate_size, 3072);
    EXPECT_EQ(config.head_dim, 64);
    EXPECT_EQ(config.num_key_value_heads, 12);
    EXPECT_EQ(config.dtype, safetensors::DType::kF16);
    EXPECT_TRUE(config.tie_word_embeddings);
    EXPECT_EQ(config.embedding_size(), 768);
    EXPECT_EQ(config.length_max(), 2048);
}

TEST(ConfigTest, WhatOptModelsMayHaveAndIsNotBuiltIsRefusedByName) {
    for (const json& change :
         {json{{"do_layer_norm_before", false}}, json{{"_remove_final_layer_norm", true}}, json{{"enable_bias", false}},
          json{{"layer_norm_elementwise_affine", false}}, json{{"activation_function", "gelu"}},
          json{{"num_attention_heads", 7}}, json{{"ffn_dim", nullptr}}, json{{"rope_theta", 10000.0}}}) {
        json object = opt();
        object.merge_patch(change);
        const auto config = parse_config(object.dump());
        ASSERT_FALSE(config.ok()) << change;
        EXPECT_EQ(config.error().field, change.begin().key()) << config.error().message;
    }
}

// Of the config.json files of huggyllama/llama-7b, the first Llama-2-7b-hf and SmolLM2-135M.
TEST(ConfigTest, KeysOfPublishedLlamasThatChangeNothingAreTaken) {
    const auto plain = parse_config(version5().dump()).value().rope_frequencies();
    for (const json& change :
         {json{{"max_sequence_length", 2048}}, json{{"max_length", 4096}}, json{{"is_llama_config", true}},
          json{{"rope_interleaved", false}}, json{{"transformers.js_config", {{"dtype", "q4"}}}}}) {
        json object = version5();
        object.merge_patch(change);
        const auto config = parse_config(object.dump());
        ASSERT_TRUE(config.ok()) << config.error().field;
        EXPECT_EQ(config->rope_frequencies(), plain) << change;
    }
}

TEST(ConfigTest, UnknownPrivateAndNullKeysAreIgnored) {
    json object = version5();
    object["_attn_implementation_autoset"] = true;
    object["sliding_window"] = nullptr;
    EXPECT_TRUE(parse_config(object.dump()).ok());
}

TEST(ConfigTest, WhatIsNoJsonObjectIsRefused) {
    for (const char* text : {"", "[]", "{\"a\":", "nul"}) EXPECT_FALSE(parse_config(text).ok()) << text;
}

TEST(ConfigTest, AKeyThatIsThereTwiceIsRefused) {
    const auto config = parse_config(R"({"vocab_size": 3, "vocab_size": 4})");
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.error().message.find("\"vocab_size\""), std::string::npos) << config.error().message;
}

TEST(ConfigTest, AFileThatIsCutOffSaysLineAndColumn) {
    const TemporaryDirectory directory;
    ASSERT_TRUE(write_file_atomic(directory.path() / "config.json", "{\n\"vocab_size\":").ok());
    const auto config = load_config(directory.path());
    ASSERT_FALSE(config.ok());
    EXPECT_TRUE(std::regex_search(config.error().message, std::regex("\\b2\\b.*\\b14\\b"))) << config.error().message;
    const std::string file = (directory.path() / "config.json").string();
    EXPECT_EQ(describe(config.error()).find(file + " is not valid JSON: "), 0) << describe(config.error());
}

TEST(ConfigTest, WhatEndsATextIsReadFromTheGenerationConfigFirst) {
    const TemporaryDirectory directory;
    const ModelConfig config = parse_config(version5().dump()).value();
    const auto read = [&](const char* text) {
        EXPECT_TRUE(write_file_atomic(directory.path() / "generation_config.json", text).ok());
        return load_eos_token_ids(directory.path(), config);
    };
    using Ids = std::vector<std::int64_t>;
    EXPECT_EQ(load_eos_token_ids(directory.path(), config).value(), (Ids{2, 3}));
    EXPECT_EQ(read(R"({"eos_token_id": 7, "top_p": 0.9})").value(), Ids{7});
    EXPECT_EQ(read(R"({"eos_token_id": [7, 2]})").value(), (Ids{7, 2}));
    EXPECT_EQ(read(R"({"max_length": 20})").value(), Ids{}) << "as transformers";
    const auto wrong = read(R"({"eos_token_id": "</s>"})");
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().field, "eos_token_id");
    EXPECT_NE(wrong.error().message.find("generation_config.json"), std::string::npos);
    EXPECT_NE(read("{").error().message.find("generation_config.json"), std::string::npos);
}

TEST(ConfigTest, WhatEndsATextIsOfTheVocabulary) {
    const TemporaryDirectory directory;
    ModelConfig config = parse_config(version5().dump()).value();
    config.vocab_size = 90;
    const auto refusal = [&] {
        const auto ids = load_eos_token_ids(directory.path(), config);
        return ids.ok() ? Error() : ids.error();
    };
    config.eos_token_ids = {2, 90};
    EXPECT_EQ(refusal().field, "eos_token_id");
    EXPECT_NE(refusal().message.find("/config.json"), std::string::npos);
    EXPECT_NE(refusal().message.find(" 90 "), std::string::npos);
    config.eos_token_ids = {0, 89};
    EXPECT_EQ(refusal().field, "");
    for (const char* id : {"-1", "90", "9223372036854775807", "18446744073709551615"}) {
        const std::string text = std::string(R"({"eos_token_id": [2, )") + id + "]}";
        ASSERT_TRUE(write_file_atomic(directory.path() / "generation_config.json", text).ok());
        EXPECT_EQ(refusal().field, "eos_token_id") << id;
        EXPECT_NE(refusal().message.find("generation_config.json"), std::string::npos) << id;
    }
}

TEST(ConfigTest, AFilesErrorNamesFileAndKey) {
    const TemporaryDirectory directory;
    EXPECT_EQ(load_config(directory.path()).error().code, ErrorCode::kNotFound);
    ASSERT_TRUE(write_file_atomic(directory.path() / "config.json", R"({"architectures": ["BartForCausalLM"]})").ok());
    const auto config = load_config(directory.path());
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.error().message.find("BartForCausalLM"), std::string::npos);
    EXPECT_EQ(parse_config("{}", "tiny.json").error().message.find("tiny.json: model_type "), 0);
    EXPECT_EQ(parse_config("[]", "tiny.json").error().message, "tiny.json is not a JSON object");
}

}  // namespace
}  // namespace atl::model_config
