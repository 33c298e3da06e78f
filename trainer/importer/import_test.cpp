#include "trainer/importer/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/safetensors/file.h"
#include "trainer/importer/torch_file.h"

namespace atl::importer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kTorchFixtures = fs::path(ATOLL_FIXTURES) / "torch";

class ImportTest : public testing::Test {
  protected:
    ImportTest() { options_.out = directory_.path() / "out"; }

    // A fixture, with what Meta's params.json leaves out.
    void take(const std::string& name) {
        options_.from = kTorchFixtures / name;
        if (name.starts_with("llama")) options_.max_position_embeddings = 64;
        if (name == "llama3") options_.rope_factor = 8.0;
    }

    // A copy of a fixture, to be damaged.
    fs::path copy(const std::string& name) {
        take(name);
        options_.from = directory_.path() / name;
        fs::copy(kTorchFixtures / name, options_.from);
        return options_.from;
    }
    // The error must name `what`, and nothing must be written.
    void expect_refused(const std::string& what, ErrorCode code = ErrorCode::kInvalidArgument) {
        const auto status = import_model(options_);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, code);
        EXPECT_NE(describe(status.error()).find(what), std::string::npos) << describe(status.error());
        std::error_code ignored;
        EXPECT_FALSE(fs::exists(options_.out, ignored));
    }
    void change(const fs::path& file, const std::string& from, const std::string& to) {
        std::string text = read_file(file).value();
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos);
        ASSERT_TRUE(write_file_atomic(file, text.replace(at, from.size(), to)).ok());
    }
    json config() { return json::parse(read_file(options_.out / "config.json").value()); }

    TemporaryDirectory directory_;
    ImportOptions options_;
};

void expect_the_same_tensors(const fs::path& model, const fs::path& expected_file) {
    const auto expected = safetensors::File::open(expected_file).value();
    const auto got = safetensors::Model::open(model).value();
    EXPECT_EQ(got.entries().size(), expected.header().tensors.size());
    for (const auto& tensor : expected.header().tensors) {
        const auto* entry = got.find(tensor.name);
        ASSERT_NE(entry, nullptr) << tensor.name;
        EXPECT_EQ(entry->tensor->dtype, tensor.dtype) << tensor.name;
        EXPECT_EQ(entry->tensor->shape, tensor.shape) << tensor.name;
        EXPECT_TRUE(std::ranges::equal(entry->file->bytes(*entry->tensor), expected.bytes(tensor))) << tensor.name;
    }
}

class ImportGoldenTest : public ImportTest, public testing::WithParamInterface<const char*> {};

TEST_P(ImportGoldenTest, EveryTensorHasTheBytesThatPyTorchWrote) {
    take(GetParam());
    const auto status = import_model(options_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    expect_the_same_tensors(options_.out, options_.from / "expected.safetensors");
}

INSTANTIATE_TEST_SUITE_P(All, ImportGoldenTest, testing::Values("single", "zip64", "sharded", "llama2", "llama3"));

TEST_F(ImportTest, AnotherDtypeRoundsAndIsSaidInTheConfiguration) {
    take("sharded");
    options_.dtype = weights::DType::kBF16;
    ASSERT_TRUE(import_model(options_).ok());
    EXPECT_EQ(config()["dtype"], "bfloat16");
    const auto model = safetensors::Model::open(options_.out).value();
    for (const auto& entry : model.entries()) EXPECT_EQ(entry.tensor->dtype, weights::DType::kBF16);
}

TEST_F(ImportTest, MetasParametersBecomeAConfiguration) {
    take("llama3");
    options_.max_position_embeddings = 131072;
    ASSERT_TRUE(import_model(options_).ok());
    const json got = config();
    EXPECT_EQ(got["vocab_size"], 12);
    EXPECT_EQ(got["intermediate_size"], 12);
    EXPECT_EQ(got["num_key_value_heads"], 2);
    EXPECT_EQ(got["max_position_embeddings"], 131072);
    EXPECT_EQ(got["rope_theta"], 500000.0);
    EXPECT_EQ(got["rope_scaling"]["rope_type"], "llama3");
    EXPECT_EQ(got["rope_scaling"]["factor"], 8.0);
    EXPECT_EQ(got["torch_dtype"], "bfloat16");
}

TEST_F(ImportTest, WhatMetasParametersLeaveOutIsAskedFor) {
    take("llama3");
    options_.rope_factor.reset();
    expect_refused("use_scaled_rope");
    options_.max_position_embeddings.reset();
    expect_refused("--max-position-embeddings");
}

TEST_F(ImportTest, WhatMeansNothingIsRefusedByName) {
    struct Case {
        const char* fixture;
        void (*give)(ImportOptions&);
        const char* field;
    };
    const Case cases[] = {
        {"single", [](ImportOptions& given) { given.max_position_embeddings = 3; }, "--max-position-embeddings"},
        {"sharded", [](ImportOptions& given) { given.rope_factor = 3; }, "--rope-factor"},
        {"llama2", [](ImportOptions& given) { given.rope_factor = 3; }, "--rope-factor"},
        {"single", [](ImportOptions& given) { given.tokenizer = "nowhere"; }, "--tokenizer"},
        {"llama2", [](ImportOptions& given) { given.tokenizer = given.from; }, "--tokenizer"},
    };
    for (const auto& [fixture, give, field] : cases) {
        const fs::path out = options_.out;
        options_ = ImportOptions();
        options_.out = out;
        take(fixture);
        give(options_);
        const auto status = import_model(options_);
        ASSERT_FALSE(status.ok()) << fixture << " " << field;
        EXPECT_EQ(status.error().field, field) << fixture;
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << fixture << " " << field;
        EXPECT_FALSE(fs::exists(options_.out)) << fixture << " " << field;
    }
}

TEST_F(ImportTest, AFileThatIsCutOffIsRefused) {
    const fs::path file = copy("single") / "pytorch_model.bin";
    const std::string whole = read_file(file).value();
    for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{100}, std::size_t{0}}) {
        ASSERT_TRUE(write_file_atomic(file, whole.substr(0, size)).ok());
        expect_refused("pytorch_model.bin");
    }
}

TEST_F(ImportTest, AStorageOfAnotherSizeIsRefused) {
    // The pickle says one element more than the member has.
    const fs::path file = copy("llama2") / "consolidated.01.pth";
    std::string text = read_file(file).value();
    const std::size_t at = text.find("cpuq");
    ASSERT_NE(at, std::string::npos);
    text[at + 6] = static_cast<char>(text[at + 6] + 1);  // cpu, BINPUT n, BININT1 count
    ASSERT_TRUE(write_file_atomic(file, text).ok());
    expect_refused("consolidated.01/data/0");
}

TEST_F(ImportTest, AClassThatRunsCodeIsRefusedByFileAndName) {
    const fs::path file = copy("single") / "pytorch_model.bin";
    change(file, "ccollections\nOrderedDict\n", "cos\nsystem              \n");
    expect_refused("os.system");
}

TEST_F(ImportTest, ShardsMustBeThereAndHoldWhatTheIndexSays) {
    const fs::path folder = copy("sharded");
    change(folder / "pytorch_model.bin.index.json", "layers.1.mlp", "layers.7.mlp");
    expect_refused("layers.7.mlp");
    fs::remove(folder / "pytorch_model-00002-of-00002.bin");
    expect_refused("pytorch_model-00002-of-00002.bin");
}

TEST_F(ImportTest, TensorsAndConfigurationMustFit) {
    const fs::path folder = copy("single");
    change(folder / "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    expect_refused("layers.1.");
    change(folder / "config.json", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 3");
    expect_refused("model.layers.2.input_layernorm.weight");
    change(folder / "config.json", "\"vocab_size\": 11", "\"vocab_size\": 12");
    expect_refused("[12, 8]");
    change(folder / "config.json", "LlamaForCausalLM", "MambaForCausalLM");
    expect_refused("'MambaForCausalLM'");
}

TEST_F(ImportTest, ATiedHeadThatIsNotTheEmbeddingIsRefused) {
    const fs::path folder = copy("sharded");
    change(folder / "config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    expect_refused("lm_head.weight");
}

TEST_F(ImportTest, ARankOfMetasFilesThatIsMissingIsNamed) {
    const fs::path folder = copy("llama2");
    fs::copy(folder / "consolidated.01.pth", folder / "consolidated.03.pth");
    expect_refused("consolidated.02.pth");
    fs::remove(folder / "consolidated.03.pth");
    fs::remove(folder / "consolidated.01.pth");
    expect_refused("consolidated.00.pth");
}

TEST_F(ImportTest, WhatEachRankHasACopyOfMustBeTheSame) {
    const fs::path folder = copy("llama2");
    const auto file = TorchFile::open(folder / "consolidated.01.pth").value();
    const auto norm = file.bytes(*file.find("norm.weight"));
    std::string bytes = read_file(folder / "consolidated.01.pth").value();
    const std::string_view member(reinterpret_cast<const char*>(norm.data()), norm.size());
    bytes[bytes.rfind(member)] ^= 1;
    ASSERT_TRUE(write_file_atomic(folder / "consolidated.01.pth", bytes).ok());
    expect_refused("consolidated.00.pth");
}

TEST_F(ImportTest, WhatCannotBeLookedAtIsAnErrorAndNotTheEnd) {
    fs::create_directory_symlink("loop", directory_.path() / "loop");
    for (const fs::path& from :
         {directory_.path() / "loop", directory_.path() / std::string(300, 'n'), directory_.path() / "none"}) {
        options_.from = from;
        expect_refused(from.filename(), ErrorCode::kNotFound);
    }
    const fs::path folder = copy("sharded");
    const fs::path shard = folder / "pytorch_model-00002-of-00002.bin";
    fs::remove(shard);
    fs::create_symlink(shard.filename(), shard);
    expect_refused(shard.filename().string(), ErrorCode::kInternal);
    const fs::path out = std::exchange(options_.out, directory_.path() / std::string(300, 'n'));
    take("single");
    expect_refused("nnn", ErrorCode::kInternal);
    options_.out = out;
}

TEST_F(ImportTest, AnAdapterOfPeftKeepsItsBytesAndItsConfiguration) {
    const fs::path golden = fs::path(ATOLL_GOLDEN_DIR) / "lora" / "rslora";
    options_.from = golden / "bin";
    const auto size = import_model(options_);
    ASSERT_TRUE(size.ok()) << describe(size.error());
    EXPECT_TRUE(holds_adapter(options_.from));
    EXPECT_EQ(read_file(options_.out / "adapter_config.json").value(),
              read_file(golden / "adapter" / "adapter_config.json").value());
    const auto expected = safetensors::File::open(golden / "adapter" / "adapter_model.safetensors").value();
    const auto got = safetensors::File::open(options_.out / "adapter_model.safetensors").value();
    ASSERT_EQ(got.header().tensors.size(), expected.header().tensors.size());
    for (const auto& tensor : expected.header().tensors) {
        const auto* own = got.header().find(tensor.name);
        ASSERT_NE(own, nullptr) << tensor.name;
        EXPECT_TRUE(std::ranges::equal(got.bytes(*own), expected.bytes(tensor))) << tensor.name;
    }
}

TEST_F(ImportTest, AnAdapterThatIsNotSupportedOrThatRunsCodeIsRefused) {
    options_.from = directory_.path() / "adapter";
    fs::copy(fs::path(ATOLL_GOLDEN_DIR) / "lora" / "rslora" / "bin", options_.from);
    const std::string config = read_file(options_.from / "adapter_config.json").value();
    change(options_.from / "adapter_config.json", "\"use_dora\": false", "\"use_dora\": true");
    expect_refused("use_dora");
    ASSERT_TRUE(write_file_atomic(options_.from / "adapter_config.json", config).ok());
    options_.tokenizer = kTorchFixtures / "single";
    expect_refused("--tokenizer");
    options_.tokenizer.clear();
    change(options_.from / "adapter_model.bin", "ctorch._utils\n_rebuild_tensor_v2\n",
           "cos\nsystem                      \n");
    expect_refused("os.system");
    fs::remove(options_.from / "adapter_model.bin");
    expect_refused("adapter_model.bin");
    fs::copy(fs::path(ATOLL_GOLDEN_DIR) / "lora" / "rslora" / "adapter" / "adapter_model.safetensors", options_.from);
    expect_refused("safetensors already");
}

TEST_F(ImportTest, SafetensorsAndEmptyDirectoriesAreSaidToBeWhatTheyAre) {
    options_.from = directory_.path() / "empty";
    fs::create_directory(options_.from);
    expect_refused("pytorch_model.bin");
    ASSERT_TRUE(write_file_atomic(options_.from / "model.safetensors", "").ok());
    expect_refused("safetensors");
}

}  // namespace
}  // namespace atl::importer
