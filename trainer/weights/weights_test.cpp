#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "shared/base/file.h"
#include "shared/model_config/tensors.h"
#include "trainer/weights/load.h"
#include "trainer/weights/save.h"
#include "trainer/weights/storage.h"

namespace atl::weights {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(ATOLL_FIXTURES) / "safetensors";

WeightReader open(const std::filesystem::path& directory) {
    auto reader = WeightReader::open(directory);
    check(reader.ok(), reader.ok() ? "" : reader.error().message);
    return std::move(reader).value();
}

std::int64_t count_of(const TensorSpec& spec) {
    return std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<float> read(const WeightReader& reader, const TensorSpec& spec) {
    std::vector<float> values(static_cast<std::size_t>(count_of(spec)));
    const Status status = reader.read(spec.name, 0, count_of(spec), values);
    check(status.ok(), status.ok() ? "" : status.error().message);
    return values;
}

// Copies the weights of `from`, in pieces of `piece` values.
Status copy(const std::filesystem::path& from, const std::filesystem::path& to, const SaveOptions& options,
            std::size_t piece = 4) {
    const WeightReader reader = open(from);
    ATOLL_TRY(WeightWriter writer, WeightWriter::create(to, reader.tensors(), options));
    for (const TensorSpec& spec : reader.tensors()) {
        const auto values = read(reader, spec);
        for (std::size_t i = 0; i < values.size(); i += piece)
            ATOLL_RETURN_IF_ERROR(writer.append(std::span(values).subspan(i, std::min(piece, values.size() - i))));
    }
    return writer.finish();
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

class WithModels {
  protected:
    SaveOptions from_base(const std::filesystem::path& base) const {
        SaveOptions options;
        options.base = base;
        return options;
    }
    // A model with one tensor "w" of fp32 values.
    std::filesystem::path write_model(const std::string& name, const std::vector<float>& values) {
        const auto path = directory_.path() / name;
        std::filesystem::create_directories(path);
        auto writer = safetensors::Writer::create(
            path / "model.safetensors", {{"w", DType::kF32, {static_cast<std::int64_t>(values.size())}, 0, 0}});
        check(writer.ok() && writer->append(std::as_bytes(std::span(values))).ok() && writer->finish().ok(),
              "cannot write a test's model");
        check(write_file_atomic(path / "config.json", R"({"torch_dtype": "float32", "x": 1})").ok(), "cannot write");
        return path;
    }
    TemporaryDirectory directory_;
};

class WeightsTest : public testing::TestWithParam<const char*>, protected WithModels {
  protected:
    std::filesystem::path fixture() const { return kFixtures / GetParam(); }
};

TEST_P(WeightsTest, ValuesAreThoseThatTheReferenceWrote) {
    const WeightReader reader = open(fixture());
    const auto values = nlohmann::json::parse(read_file(fixture() / "values.json").value());
    ASSERT_EQ(reader.tensors().size(), 3U);
    for (const TensorSpec& spec : reader.tensors()) {
        const auto actual = read(reader, spec);
        const auto expected = values[spec.name].get<std::vector<double>>();
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_EQ(actual[i], expected[i]) << spec.name << " " << i;
    }
}

TEST_P(WeightsTest, ARoundTripGivesTheReferencesBytes) {
    const auto out = directory_.path() / "out";
    const Status status = copy(fixture(), out, from_base(fixture()));
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (const char* name : {"model.safetensors", "config.json"})
        EXPECT_EQ(read_file(out / name).value(), read_file(fixture() / name).value()) << name;
    EXPECT_EQ(names_in(out), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST_P(WeightsTest, ASliceIsPartOfTheWhole) {
    const WeightReader reader = open(fixture());
    const TensorSpec spec = reader.tensors()[1];
    const auto whole = read(reader, spec);
    for (std::int64_t begin = 0; begin <= count_of(spec); ++begin) {
        for (std::int64_t end = begin; end <= count_of(spec); ++end) {
            std::vector<float> slice(static_cast<std::size_t>(end - begin));
            ASSERT_TRUE(reader.read(spec.name, begin, end, slice).ok());
            EXPECT_EQ(slice, std::vector<float>(whole.begin() + begin, whole.begin() + end));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, WeightsTest, testing::Values("float32", "float16", "bfloat16"),
                         [](const auto& dtype) { return std::string(dtype.param); });

class WeightFilesTest : public testing::Test, protected WithModels {
  protected:
    static std::filesystem::path fixture() { return kFixtures / "float32"; }
};

TEST_F(WeightFilesTest, ShardsHoldTheSameModelAndAnIndex) {
    const auto out = directory_.path() / "out";
    SaveOptions options = from_base(fixture());
    options.shard_bytes_max = 40;
    ASSERT_TRUE(copy(fixture(), out, options, 1000).ok());
    EXPECT_EQ(names_in(out), (std::vector<std::string>{
                                 "config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                 "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
    const WeightReader whole = open(fixture());
    const WeightReader sharded = open(out);
    for (const TensorSpec& spec : whole.tensors()) EXPECT_EQ(read(sharded, spec), read(whole, spec));
    const auto index = nlohmann::json::parse(read_file(out / "model.safetensors.index.json").value());
    EXPECT_EQ(index["metadata"]["total_size"], (15 + 6 + 7) * 4);
}

TEST_F(WeightFilesTest, AnOlderModelInThePlaceIsReplacedEntirelyAndOtherFilesStay) {
    const auto out = directory_.path() / "out";
    SaveOptions shards = from_base(fixture());
    shards.shard_bytes_max = 40;
    for (const SaveOptions& first : {from_base(fixture()), shards}) {
        for (const SaveOptions& second : {from_base(fixture()), shards}) {
            std::filesystem::remove_all(out);
            ASSERT_TRUE(copy(fixture(), out, first).ok());
            ASSERT_TRUE(write_file_atomic(out / "notes.txt", "mine").ok());
            ASSERT_TRUE(copy(kFixtures / "float16", out, second).ok());
            EXPECT_EQ(open(out).tensors()[0].dtype, DType::kF16);
            EXPECT_EQ(open(out).tensors().size(), 3U);
            EXPECT_EQ(read_file(out / "notes.txt").value(), "mine");
            const bool sharded = second.shard_bytes_max == 40;
            EXPECT_EQ(names_in(out).size(), sharded ? 6U : 3U) << "older weights stayed";
        }
    }
}

TEST_F(WeightFilesTest, TheConfigSaysTheDtypeOfTheWeights) {
    const auto base = write_model("base", {1.0F, 2.0F});
    SaveOptions options = from_base(base);
    options.dtype = DType::kBF16;
    const auto out = directory_.path() / "out";
    ASSERT_TRUE(copy(base, out, options).ok());
    EXPECT_EQ(nlohmann::json::parse(read_file(out / "config.json").value()),
              (nlohmann::json{{"torch_dtype", "bfloat16"}, {"x", 1}}));
    options = from_base(kFixtures / "float16");
    options.dtype = DType::kF32;
    ASSERT_TRUE(copy(base, out, options).ok());
    EXPECT_EQ(nlohmann::json::parse(read_file(out / "config.json").value())["dtype"], "float32");
}

TEST_F(WeightFilesTest, TokenizerFilesGoAlong) {
    const auto base = write_model("base", {1.0F});
    const std::vector<std::string> expected = {
        "added_tokens.json", "generation_config.json", "merges.txt", "special_tokens_map.json", "tokenizer.json",
        "tokenizer.model",   "tokenizer_config.json",  "vocab.json"};
    for (const std::string& name : expected) ASSERT_TRUE(write_file_atomic(base / name, name).ok());
    ASSERT_TRUE(write_file_atomic(base / "README.md", "r").ok());
    const auto out = directory_.path() / "out";
    ASSERT_TRUE(copy(base, out, from_base(base)).ok());
    std::vector<std::string> all = expected;
    all.insert(all.end(), {"config.json", "model.safetensors"});
    std::sort(all.begin(), all.end());
    ASSERT_EQ(names_in(out), all);
    for (const std::string& name : expected) EXPECT_EQ(read_file(out / name).value(), name);
}

TEST_F(WeightFilesTest, AnUnfinishedSaveLeavesTheOldModel) {
    const auto out = write_model("out", {1.0F, 2.0F});
    const auto before = names_in(out);
    {
        auto writer = WeightWriter::create(out, {{"w", {2}, DType::kF32}}, from_base(out));
        ASSERT_TRUE(writer.ok()) << writer.error().message;
        ASSERT_TRUE(writer->append(std::vector<float>{3.0F}).ok());
        const Status status = writer->finish();
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("\"w\""), std::string::npos);
    }
    EXPECT_EQ(names_in(out), before);
    EXPECT_EQ(read(open(out), {"w", {2}, DType::kF32}), (std::vector<float>{1.0F, 2.0F}));
}

TEST_F(WeightFilesTest, AModelThatIsHalfInPlaceIsNone) {
    const auto base = write_model("base", {3.0F});
    const auto out = write_model("out", {1.0F});
    std::filesystem::remove(out / "model.safetensors");
    std::filesystem::create_directory(out / "model.safetensors");  // so that the new weights cannot take their place
    EXPECT_FALSE(copy(base, out, from_base(base)).ok());
    EXPECT_EQ(names_in(out), std::vector<std::string>{"model.safetensors"}) << "no configuration of either";
}

TEST_F(WeightFilesTest, WhatAKilledProcessLeftIsRemoved) {
    const auto base = write_model("base", {1.0F, 2.0F});
    const auto out = directory_.path() / "out";
    const pid_t child = ::fork();
    if (child == 0) {
        auto writer = WeightWriter::create(out, {{"w", {2}, DType::kF32}}, from_base(base));
        ::_exit(writer.ok() && write_file_atomic(out / ".saving/rest", "x").ok() ? 0 : 1);  // no destructor runs
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(names_in(out).size(), 1U);
    ASSERT_TRUE(copy(base, out, from_base(base)).ok());
    EXPECT_EQ(names_in(out), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST_F(WeightFilesTest, TwoDoNotWriteIntoOneDirectory) {
    const auto base = write_model("base", {1.0F, 2.0F});
    const auto out = directory_.path() / "out";
    auto writer = WeightWriter::create(out, {{"w", {2}, DType::kF32}}, from_base(base));
    ASSERT_TRUE(writer.ok());
    const Status second = copy(base, out, from_base(base));
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::kConflict);
    EXPECT_EQ(second.error().field, out.string());
    ASSERT_TRUE(writer->append(std::vector<float>{1.0F, 2.0F}).ok());
    EXPECT_TRUE(writer->finish().ok());
}

// A limit on the size of files stands in for a full disk: writes fail in the same way.
TEST_F(WeightFilesTest, AFullDiskLeavesTheOldModelAndAnErrorThatNamesTheFile) {
    const auto out = write_model("out", {1.0F, 2.0F});
    const auto large = write_model("large", std::vector<float>(2'000'000, 0.5F));
    const auto before = names_in(out);
    const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
    struct rlimit old_limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
    const struct rlimit limit{1U << 20, old_limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Status status = copy(large, out, from_base(large), 100'000);
    ::setrlimit(RLIMIT_FSIZE, &old_limit);
    ::signal(SIGXFSZ, old_handler);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("model.safetensors"), std::string::npos) << status.error().message;
    EXPECT_EQ(names_in(out), before);
    EXPECT_EQ(read(open(out), {"w", {2}, DType::kF32}), (std::vector<float>{1.0F, 2.0F}));
}

TEST_F(WeightFilesTest, ValuesThatTheDtypeCannotHoldAreNotSaved) {
    const auto base = write_model("base", {1.0F, 70000.0F});
    SaveOptions options = from_base(base);
    options.dtype = DType::kF16;
    const Status status = copy(base, directory_.path() / "out", options);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().field, "w");
    EXPECT_FALSE(std::filesystem::exists(directory_.path() / "out/model.safetensors"));
}

TEST_F(WeightFilesTest, WeightsThatDoNotFitTheModelAreNamedWithTheirFile) {
    const WeightReader reader = open(fixture());
    const std::vector<TensorSpec> good = reader.tensors();
    const auto message = [&](const std::vector<TensorSpec>& expected, std::vector<std::string> ignorable = {}) {
        const Status status = reader.check_tensors(expected, ignorable);
        return status.ok() ? std::string() : status.error().message;
    };
    EXPECT_EQ(message(good), "");
    auto missing = good;
    missing.push_back({"model.extra", {1}, DType::kF32});
    EXPECT_NE(message(missing).find("\"model.extra\""), std::string::npos);
    auto fewer = good;
    const std::string last = fewer.back().name;
    fewer.pop_back();
    EXPECT_NE(message(fewer).find("model.safetensors: tensor \"" + last + "\""), std::string::npos);
    EXPECT_EQ(message(fewer, {last}), "");
    EXPECT_EQ(message(fewer, {"*" + last.substr(3)}), "");
    EXPECT_NE(message(fewer, {"other"}), "");
    auto reshaped = good;
    reshaped[1].shape = {3, 5};
    EXPECT_NE(message(reshaped).find("[3, 5]"), std::string::npos);
}

TEST_F(WeightFilesTest, AWeightThatIsNotFiniteIsNamedByItsPlace) {
    for (const float bad : {NAN, INFINITY}) {
        std::vector<float> values(1'500'000, 0.5F);
        values[1'200'000] = bad;
        const WeightReader reader = open(write_model("bad", values));
        std::vector<float> out(values.size());
        const Status status = reader.read("w", 0, 1'500'000, out);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("model.safetensors: tensor \"w\""), std::string::npos);
        EXPECT_NE(status.error().message.find("element 1200000"), std::string::npos);
        EXPECT_TRUE(reader.read("w", 0, 1'200'000, std::span(out).first(1'200'000)).ok()) << "another rank's slice";
    }
}

TEST_F(WeightFilesTest, IntegerTensorsAreNoWeights) {
    const auto path = directory_.path() / "model";
    std::filesystem::create_directories(path);
    auto writer = safetensors::Writer::create(path / "model.safetensors", {{"w", DType::kI32, {1}, 0, 0}});
    const std::int32_t value = 1;
    ASSERT_TRUE(writer.ok() && writer->append(std::as_bytes(std::span(&value, 1))).ok() && writer->finish().ok());
    const WeightReader reader = open(path);
    const std::vector<TensorSpec> expected = {{"w", {1}, DType::kF32}};
    EXPECT_NE(reader.check_tensors(expected).error().message.find("I32"), std::string::npos);
    float out = 0;
    EXPECT_FALSE(reader.read("w", 0, 1, {&out, 1}).ok());
}

TEST_F(WeightFilesTest, NamesOfDtypesAreThoseOfFlagsAndConfigs) {
    EXPECT_EQ(parse_file_dtype("fp16").value(), DType::kF16);
    EXPECT_EQ(parse_file_dtype("bfloat16").value(), DType::kBF16);
    EXPECT_FALSE(parse_file_dtype("int8").ok());
}

// The table by which the coordinator's tools check a model's files before they travel, against the model itself.
TEST(TensorTableTest, AModelHasTheTensorsThatItsConfigurationIsSaidToAskFor) {
    const char* const sizes = R"("vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
        "max_position_embeddings": 32)";
    const std::string llama = R"("intermediate_size": 40, "num_key_value_heads": 2)";
    const std::string opt = R"("model_type": "opt", "ffn_dim": 40)";
    for (const std::string& family :
         {R"("model_type": "llama", )" + llama, R"("model_type": "llama", "tie_word_embeddings": true, )" + llama,
          R"("model_type": "mistral", "head_dim": 8, )" + llama, R"("model_type": "qwen2", )" + llama,
          R"("model_type": "qwen3", "attention_bias": true, )" + llama, opt,
          opt + R"(, "word_embed_proj_dim": 12, "tie_word_embeddings": false)"}) {
        const auto config = model_config::parse_config("{" + family + ", " + sizes + "}");
        ASSERT_TRUE(config.ok()) << family << ": " << config.error().message;
        std::map<std::string, std::vector<std::int64_t>> own, table;
        for (const TensorSpec& spec : tensor_specs(model::make_model(*config), false)) own[spec.name] = spec.shape;
        for (const TensorSpec& spec : model_config::tensors_of(*config)) table[spec.name] = spec.shape;
        EXPECT_EQ(own, table) << family;
    }
}

}  // namespace
}  // namespace atl::weights
