#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/delta/base_digest.h"
#include "shared/delta/control_variate.h"
#include "shared/delta/delta.h"
#include "shared/json/json.h"
#include "shared/safetensors/file.h"
#include "shared/safetensors/safetensors.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

// The program itself, with no service anywhere.
class AggregateCommandTest : public testing::Test {
  protected:
    fs::path make_model(const std::string& name, const std::vector<float>& weights) {
        const fs::path directory = temporary_.path() / name;
        fs::create_directories(directory);
        check(write_file_atomic(directory / "model.safetensors", file_of("w", {std::ssize(weights)}, weights)).ok(),
              "cannot write a model");
        check(write_file_atomic(directory / "config.json", "\"" + name + "\"").ok(), "cannot write a model");
        return directory;
    }
    static std::string file_of(const std::string& tensor, std::vector<std::int64_t> shape,
                               const std::vector<float>& values) {
        std::vector<safetensors::TensorInfo> tensors = {{tensor, safetensors::DType::kF32, std::move(shape), 0, 0}};
        std::string bytes = safetensors::make_header(tensors);
        bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
        return bytes;
    }
    // An embedding of one column, and how often each of its tokens was seen.
    fs::path make_counted(const std::string& name, const std::vector<float>& rows, const std::vector<float>& counts) {
        const fs::path directory = make_model(name, {});
        const auto tokens = static_cast<std::int64_t>(rows.size());
        check(write_file_atomic(directory / "config.json", "{}").ok() &&
                  write_file_atomic(directory / "model.safetensors",
                                    file_of("model.embed_tokens.weight", {tokens, 1}, rows))
                      .ok() &&
                  write_file_atomic(directory / "token_counts.safetensors",
                                    file_of("token_counts", {std::ssize(counts)}, counts))
                      .ok(),
              "cannot write a model");
        return directory;
    }
    // The int4 change of a model of `make_model`: the largest value is 7 of the scale's steps.
    fs::path make_change(const std::string& name, std::vector<float> change, const std::string& base) {
        const fs::path directory = make_model(name, {});
        fs::remove(directory / "model.safetensors");
        std::vector<safetensors::TensorInfo> tensors = {
            delta::packed_tensor(delta::Format::kInt4, {"w", safetensors::DType::kF32, {std::ssize(change)}, 0, 0})};
        std::string bytes = safetensors::make_header(tensors, {{delta::kFormatKey, "int4"}, {delta::kBaseKey, base}});
        std::string block(delta::block_bytes(delta::Format::kInt4), '\0');
        check(delta::encode_block(delta::Format::kInt4, change, std::as_writable_bytes(std::span(block))), "finite");
        check(write_file_atomic(directory / delta::kFile, bytes + block).ok(), "cannot write a change");
        return directory;
    }
    // A control variate of one block beside a model of `make_model`.
    void add_variate(const fs::path& directory, std::vector<float> values, const std::string& base) {
        std::vector<safetensors::TensorInfo> tensors = {
            delta::packed_tensor(delta::Format::kInt8, {"w", safetensors::DType::kF32, {std::ssize(values)}, 0, 0})};
        std::string bytes = safetensors::make_header(tensors, {{delta::kFormatKey, "int8"}, {delta::kBaseKey, base}});
        std::string block(delta::block_bytes(delta::Format::kInt8), '\0');
        check(delta::encode_block(delta::Format::kInt8, values, std::as_writable_bytes(std::span(block))), "finite");
        check(write_file_atomic(directory / delta::kControlVariateFile, bytes + block).ok(), "cannot write it");
    }
    CommandResult aggregate(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {ATOLL_PROGRAM, "aggregate"});
        return run_command(arguments).value();
    }
    std::vector<float> weights_of(const fs::path& directory, std::size_t count) {
        const std::string bytes = read_file(directory / "model.safetensors").value();
        std::vector<float> weights(count);
        std::memcpy(weights.data(), bytes.data() + bytes.size() - count * sizeof(float), count * sizeof(float));
        return weights;
    }

    TemporaryDirectory temporary_;
    std::string a_ = make_model("a", {0, 4});
    std::string b_ = make_model("b", {4, 8});
    std::string out_ = temporary_.path() / "out";
};

TEST_F(AggregateCommandTest, TheMeanIsPlainWithoutWeights) {
    const auto result = aggregate({"--strategy", "fedavg", "--out", out_, a_, b_});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(weights_of(out_, 2), (std::vector<float>{2, 6}));
    EXPECT_EQ(read_file(fs::path(out_) / "config.json").value(), "\"a\"");
}

TEST_F(AggregateCommandTest, WeightsAreACommaSeparatedList) {
    const auto result = aggregate({"--strategy", "fedavg", "--weights", "3,1", "--out", out_, "--json", a_, b_});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(weights_of(out_, 2), (std::vector<float>{1, 5}));
    EXPECT_EQ(json::parse(result.out)->at("inputs"), 2);
}

TEST_F(AggregateCommandTest, ATrimmedMeanLeavesOutWhatLiesOutside) {
    const std::string c = make_model("c", {-1000, 1000});
    const auto result = aggregate({"--strategy", "trimmed_mean", "--trim", "0.1", "--out", out_, a_, b_, c});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(weights_of(out_, 2), (std::vector<float>{0, 8}));
}

TEST_F(AggregateCommandTest, WithABaseItsFilesCountAndAFarModelCountsInPartOrNotAtAll) {
    const std::string base = make_model("base", {1, 5});
    fs::rename(fs::path(a_) / "model.safetensors", fs::path(a_) / "renamed.safetensors");
    const auto result = aggregate({"--base", base, "--clip", "1.3", "--drop", "3", "--out", out_, a_, b_});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(weights_of(out_, 2), (std::vector<float>{2, 6}));
    EXPECT_EQ(read_file(fs::path(out_) / "config.json").value(), "\"base\"");
    const std::string near = make_model("near", {1, 6}), other = make_model("other", {1, 6});
    const std::string far = make_model("far", {1, 105});
    const auto dropped = aggregate({"--base", base, "--drop", "3", "--out", out_ + "2", near, other, far});
    ASSERT_EQ(dropped.exit_code, 0) << dropped.err;
    EXPECT_NEAR(weights_of(out_ + "2", 2)[1], 5 + 2.F / 3, 1e-6);
    EXPECT_NE(dropped.out.find("far: its change has the norm 100.0; 0 % of it counts"), std::string::npos)
        << dropped.out;
    const auto clipped = aggregate({"--json", "--base", base, "--clip", "2", "--out", out_ + "3", near, other, far});
    ASSERT_EQ(clipped.exit_code, 0) << clipped.err;
    EXPECT_NEAR(weights_of(out_ + "3", 2)[1], 5 + 4.F / 3, 1e-6);
    EXPECT_EQ(json::parse(clipped.out)->at("changes")[2]["counted"], 0.02);
    EXPECT_EQ(json::parse(clipped.out)->at("changes")[2]["cosine"], 1);
    const auto longer = aggregate(
        {"--base", base, "--clip", "2", "--drop", "3", "--steps", "10,10,1000", "--out", out_ + "4", near, other, far});
    ASSERT_EQ(longer.exit_code, 0) << longer.err;
    EXPECT_NEAR(weights_of(out_ + "4", 2)[1], 5 + 102.F / 3, 1e-4) << "a hundred times as many steps may go as far";
}

TEST_F(AggregateCommandTest, ModelsThatAreAbsentCountAsTheBase) {
    const std::string base = make_model("base", {0, 0});
    const auto result = aggregate({"--base", base, "--weights", "1,3", "--absent", "2,2", "--out", out_, a_, b_});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(weights_of(out_, 2), (std::vector<float>{1.5, 3.5}));
    for (const std::vector<std::string>& wrong :
         {std::vector<std::string>{"--absent", "2"}, {"--base", base, "--absent", "-2"}}) {
        std::vector<std::string> arguments = wrong;
        arguments.insert(arguments.end(), {"--out", out_ + "2", a_, b_});
        const auto refused = aggregate(arguments);
        EXPECT_EQ(refused.exit_code, 2) << refused.err;
        EXPECT_NE(refused.err.find("--absent"), std::string::npos) << refused.err;
    }
}

TEST_F(AggregateCommandTest, ControlVariatesAreAveragedAndTheNextRoundGoesOnFromThem) {
    const std::string base = make_model("base", {0, 0});
    const auto digest = [](const std::string& directory) {
        return delta::model_sha256(safetensors::Model::open(directory).value()).value();
    };
    const std::string strategy = R"({"name":"fedavg","weighting":"uniform","control_variate":0.7})";
    add_variate(a_, {127, 0}, digest(base));
    add_variate(b_, {0, 127}, digest(base));
    const auto result = aggregate({"--strategy", strategy, "--base", base, "--out", out_, "--json", a_, b_});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out)->at("changes")[1]["control_variate"]["counted"], 1) << result.out;
    const auto mean = [](const fs::path& directory) {
        const std::string bytes = read_file(directory / "control_variate/model.safetensors").value();
        std::vector<float> values(2);
        for (std::size_t i = 0; i < 2; ++i) {  // of BF16 the upper half of a float
            std::memcpy(reinterpret_cast<char*>(&values[i]) + 2, bytes.data() + bytes.size() - 4 + 2 * i, 2);
        }
        return values;
    };
    EXPECT_EQ(mean(out_), (std::vector<float>{63.5, 63.5}));
    EXPECT_FALSE(fs::exists(fs::path(out_) / "control_variate.safetensors")) << "it is of one training";
    const auto foreign = aggregate({"--strategy", strategy, "--base", out_, "--out", out_ + "2", a_, b_});
    EXPECT_EQ(foreign.exit_code, 2);
    EXPECT_NE(foreign.err.find("is of a training of another model"), std::string::npos) << foreign.err;
    add_variate(a_, {127, 0}, digest(out_));
    add_variate(b_, {0, 127}, digest(out_));
    const auto next = aggregate({"--strategy", strategy, "--base", out_, "--absent", "2", "--out", out_ + "2", a_, b_});
    ASSERT_EQ(next.exit_code, 0) << next.err;
    EXPECT_EQ(mean(out_ + "2"), (std::vector<float>{63.5, 63.5})) << "half of it is the base's";
    fs::remove(fs::path(b_) / delta::kControlVariateFile);
    const auto missing = aggregate({"--strategy", strategy, "--base", out_, "--out", out_ + "3", a_, b_});
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_NE(missing.err.find("b/control_variate.safetensors: is missing"), std::string::npos) << missing.err;
    const auto no_base = aggregate({"--strategy", strategy, "--out", out_ + "3", a_, b_});
    EXPECT_EQ(no_base.exit_code, 2);
    EXPECT_NE(no_base.err.find("--base"), std::string::npos) << no_base.err;
}

TEST_F(AggregateCommandTest, RowsAreAddedByWhoHasSeenTheirTokens) {
    const std::string base = make_counted("base", {0, 0}, {0, 0}), one = make_counted("one", {4, 4}, {3, 0});
    const std::string other = make_counted("other", {8, 8}, {1, 5});
    const auto result = aggregate({"--row-weights", "tokens", "--base", base, "--out", out_, one, other});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<float> rows = weights_of(out_, 2);
    EXPECT_NEAR(rows[0], (2 * 4 + 8) / std::sqrt(5), 1e-5) << "one is believed four times what the other has seen";
    EXPECT_EQ(rows[1], 8) << "one alone has seen it";
    EXPECT_FALSE(fs::exists(fs::path(out_) / "token_counts.safetensors")) << "they are of one training";
    fs::remove(fs::path(other) / "token_counts.safetensors");
    const std::string again = out_ + "2";
    const auto refused = aggregate({"--row-weights", "tokens", "--base", base, "--out", again, one, other});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("other/token_counts.safetensors: is missing"), std::string::npos) << refused.err;
    for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--row-weights", "tokens"},
                                                  {"--row-weights", "tokens", "--strategy", "trimmed_mean"},
                                                  {"--row-weights", "rows"}}) {
        std::vector<std::string> arguments = wrong;
        arguments.insert(arguments.end(), {"--out", again, one});
        const auto no_base = aggregate(arguments);
        EXPECT_EQ(no_base.exit_code, 2) << no_base.err;
        EXPECT_NE(no_base.err.find("--row-weights"), std::string::npos) << no_base.err;
    }
}

TEST_F(AggregateCommandTest, AJobsStrategyGoesOnFromWhatItLeftBesideTheBase) {
    const std::string base = make_model("base", {0, 0});
    const std::string outer = R"({"name":"fedavg","outer":{"lr":1,"momentum":0.5}})";
    ASSERT_EQ(aggregate({"--strategy", outer, "--base", base, "--out", out_, a_, b_}).exit_code, 0);
    EXPECT_EQ(weights_of(out_, 2), (std::vector<float>{3, 9})) << "a step and half of its momentum";
    const std::string next = out_ + "2", plain = out_ + "3";
    ASSERT_EQ(aggregate({"--strategy", outer, "--base", out_, "--out", next, out_, out_}).exit_code, 0);
    EXPECT_EQ(weights_of(next, 2), (std::vector<float>{3.5F, 10.5F})) << "a quarter of the first step";
    ASSERT_EQ(aggregate({"--base", next, "--out", plain, a_, b_}).exit_code, 0);
    EXPECT_FALSE(fs::exists(fs::path(plain) / "momentum")) << "it is not this round's";
    for (const auto& [wrong, named] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--strategy", R"({"name":"fedavg","outer":{"lr":-1}})"}, "strategy.outer.lr"},
             {{"--strategy", "{name"}, "--strategy"},
             {{"--strategy", R"( {"name":"fedavg","weighting":"tokens"})"}, "--weights"},
             {{"--strategy", R"({"name":"fedavg","absent":"no_change"})"}, "--absent"},
             {{"--strategy", outer, "--clip", "2"}, "--strategy"}}) {
        std::vector<std::string> arguments = wrong;
        arguments.insert(arguments.end(), {"--base", base, "--out", out_ + "4", a_, b_});
        const auto refused = aggregate(arguments);
        EXPECT_EQ(refused.exit_code, 2) << refused.err;
        EXPECT_NE(refused.err.find(named), std::string::npos) << refused.err;
    }
    for (const std::string& needy : {outer, std::string(R"({"name":"fedavg","clip":2})")}) {
        const auto refused = aggregate({"--strategy", needy, "--out", out_ + "4", a_, b_});
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_NE(refused.err.find("needs --base"), std::string::npos) << refused.err;
    }
    EXPECT_EQ(aggregate({"--strategy", R"({"name":"median"})", "--out", out_ + "4", a_, b_}).exit_code, 0);
}

TEST_F(AggregateCommandTest, ADirectoryMayHoldTheChangeFromTheBase) {
    const std::string base = make_model("base", {1, 5}), whole = make_model("whole", {3, 5});
    const auto digest = delta::model_sha256(safetensors::Model::open(fs::path(base)).value());
    ASSERT_TRUE(digest.ok());
    const std::string small = make_change("small", {7, -3.5F}, *digest);
    const auto result = aggregate({"--base", base, "--out", out_, whole, small});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(weights_of(out_, 2), (std::vector<float>{5.5F, 3}));  // (3 + 8) / 2, (5 + 5 - 4) / 2
    EXPECT_FALSE(fs::exists(fs::path(out_) / delta::kFile));
    const auto no_base = aggregate({"--out", out_ + "2", whole, small});
    EXPECT_EQ(no_base.exit_code, 2) << no_base.err;
    EXPECT_NE(no_base.err.find("is a change of a model"), std::string::npos) << no_base.err;
    const auto other = aggregate({"--base", whole, "--out", out_ + "2", base, small});
    EXPECT_EQ(other.exit_code, 2) << other.err;
    EXPECT_NE(other.err.find("small/delta.safetensors is a change of another model"), std::string::npos) << other.err;
}

TEST_F(AggregateCommandTest, TheResultHasTheDtypeThatIsAskedForAndSaysSo) {
    const auto write = [](const fs::path& file, const std::string& text) {
        ASSERT_TRUE(write_file_atomic(file, text).ok());
    };
    const fs::path a = make_model("one", {0, 1.0F / 3, 1e-3F}), b = make_model("two", {1, 1.0F / 3, 2e-3F});
    for (const fs::path& model : {a, b}) {
        write(model / "config.json", R"({"model_type": "llama", "torch_dtype": "float32"})");
        write(model / "model.safetensors.index.json",
              R"({"metadata": {"total_size": 12}, "weight_map": {"w": "model.safetensors"}})");
    }
    const auto made = [&](const std::string& dtype, const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"--dtype", dtype, "--out", out_, a.string(), b.string()};
        arguments.insert(arguments.end(), more.begin(), more.end());
        fs::remove_all(out_);
        const auto result = aggregate(arguments);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return read_file(fs::path(out_) / "model.safetensors").value();
    };
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, std::vector<std::string>{"--base", a.string()}}) {
        const std::string bf16 = made("bf16", more), fp16 = made("fp16", more);
        EXPECT_EQ(bf16.substr(bf16.size() - 6), "\x00\x3f\xab\x3e\xc5\x3a"s) << "0.5, 1/3 and 0.0015, to nearest";
        EXPECT_EQ(fp16.substr(fp16.size() - 6), "\x00\x38\x55\x35\x25\x16"s);
        EXPECT_NE(bf16.find(R"("dtype":"BF16")"), std::string::npos) << bf16;
        const auto config = json::parse(read_file(fs::path(out_) / "config.json").value()).value();
        EXPECT_EQ(config["torch_dtype"], "float16");
        EXPECT_FALSE(config.contains("dtype"));
        const auto index = json::parse(read_file(fs::path(out_) / "model.safetensors.index.json").value()).value();
        EXPECT_EQ(index["metadata"]["total_size"], 6);
        EXPECT_EQ(aggregate({"--dtype", "fp32", "--out", out_ + "2", out_, out_}).exit_code, 0) << "widened again";
        fs::remove_all(out_ + "2");
    }
    const fs::path large = make_model("large", {1e6F, 0, 0});
    write(large / "config.json", "{}");
    fs::remove_all(out_);
    const auto overflow = aggregate({"--dtype", "fp16", "--out", out_, large.string(), large.string()});
    EXPECT_NE(overflow.exit_code, 0);
    EXPECT_NE(overflow.err.find("overflows F16"), std::string::npos) << overflow.err;
    EXPECT_NE(aggregate({"--dtype", "int8", "--out", out_, a.string()}).exit_code, 0);
    EXPECT_FALSE(fs::exists(out_));
}

TEST_F(AggregateCommandTest, ModelsWhoseTokenizersDifferAreRefusedAndOtherFormsOfOneAreNoted) {
    const auto add = [](const fs::path& directory, const json::Json& vocabulary, int indent) {
        const json::Json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}}}};
        check(write_file_atomic(directory / "tokenizer.json", tokenizer.dump(indent)).ok(), "cannot write a tokenizer");
    };
    const fs::path one = make_model("one", {1}), other = make_model("other", {3});
    add(one, {{"a", 0}, {"b", 1}}, -1);
    add(other, {{"a", 1}, {"b", 0}}, -1);
    const auto refused = aggregate({"--out", out_, one, other});
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_NE(refused.err.find("other/tokenizer.json: the token 0 is \"b\", but \"a\" in "), std::string::npos)
        << refused.err;
    EXPECT_FALSE(fs::exists(out_));
    add(other, {{"a", 0}, {"b", 1}}, 1);
    const auto noted = aggregate({"--out", out_, one, other});
    EXPECT_EQ(noted.exit_code, 0) << noted.err;
    EXPECT_NE(noted.err.find("other: its tokenizer files differ from those of "), std::string::npos) << noted.err;
}

TEST_F(AggregateCommandTest, OfTwoModelsNothingIsCutWhichIsSaid) {
    const fs::path one = make_model("one", {1}), other = make_model("other", {3}), third = make_model("third", {4});
    const auto two = aggregate({"--strategy", "trimmed_mean", "--out", out_, one, other});
    EXPECT_NE(two.err.find("the trimmed_mean of two models is their mean"), std::string::npos) << two.err;
    EXPECT_EQ(weights_of(out_, 1), std::vector<float>{2});
    fs::remove_all(out_);
    EXPECT_EQ(aggregate({"--strategy", "median", "--out", out_, "--dtype", "float16", one, other, third}).err, "");
}

TEST_F(AggregateCommandTest, FilesOfPyTorchAreReadToo) {
    if (!fs::exists(fs::path(ATOLL_PROGRAM).parent_path() / "atoll-trainer")) GTEST_SKIP() << "there is no trainer";
    const fs::path torch = fs::path(ATOLL_FIXTURES) / "torch/single";
    ASSERT_FALSE(fs::exists(torch / "model.safetensors"));
    fs::copy(torch, temporary_.path() / "from");
    fs::remove(temporary_.path() / "from/expected.safetensors");
    const std::string from = (temporary_.path() / "from").string();
    const auto made = aggregate({"--out", out_, from, from});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_NE(made.err.find(from + ": making safetensors of pytorch_model.bin"), std::string::npos) << made.err;
    const auto mean = safetensors::Model::open(out_),
               expected = safetensors::Model::open_file(torch / "expected.safetensors");
    ASSERT_TRUE(mean.ok() && expected.ok());
    for (const auto& entry : expected->entries()) {
        const auto* found = mean->find(entry.tensor->name);
        ASSERT_NE(found, nullptr) << entry.tensor->name;
        const auto ours = found->file->bytes(*found->tensor), theirs = entry.file->bytes(*entry.tensor);
        EXPECT_TRUE(std::ranges::equal(ours, theirs)) << entry.tensor->name;
    }
    EXPECT_TRUE(fs::exists(fs::path(out_) / "config.json"));
}

TEST_F(AggregateCommandTest, WhatOnlyCallsItselfPyTorchsIsRefused) {
    for (const char* file : {"pytorch_model.bin", "adapter_model.bin"}) {
        const fs::path directory = make_model(std::string("of_") + file, {});
        fs::rename(directory / "model.safetensors", directory / file);
        const auto result = aggregate({"--out", out_, directory.string(), directory.string()});
        EXPECT_NE(result.exit_code, 0);
        EXPECT_NE(result.err.find("atoll-trainer import: " + directory.string()), std::string::npos) << result.err;
        EXPECT_FALSE(fs::exists(out_));
    }
}

TEST_F(AggregateCommandTest, AnUpdateWithNanIsNotPushed) {
    const auto push = [](const std::string& directory) {
        CommandOptions options;
        options.input = "token\n";
        return run_command({ATOLL_PROGRAM, "push", "--store", "http://127.0.0.1:1/store", "--model", "m", "--dir",
                            directory, "--token-stdin"},
                           options)
            .value();
    };
    const auto result = push(make_model("spoilt", {1, NAN}));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("tensor \"w\""), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("NaN"), std::string::npos) << result.err;
    EXPECT_NE(push(a_).exit_code, 2) << "a good one fails only for want of a store";
}

TEST_F(AggregateCommandTest, ModelsThatComputeDifferentlyAreRefusedByTheirSetting) {
    const auto refusal = [&](const char* file, const char* first, const char* second) {
        check(write_file_atomic(fs::path(a_) / file, first).ok(), "cannot write a model");
        check(write_file_atomic(fs::path(b_) / file, second).ok(), "cannot write a model");
        const auto result = aggregate({"--out", out_, a_, b_});
        EXPECT_EQ(result.exit_code, 2) << file << first << second;
        EXPECT_FALSE(fs::exists(out_));
        return result.err;
    };
    EXPECT_NE(refusal("config.json", R"({"rope_theta":1e4})", R"({"rope_theta":5e5})")
                  .find("b/config.json: rope_theta is 500000.0, but 10000.0 in "),
              std::string::npos);
    check(write_file_atomic(fs::path(a_) / "config.json", R"({"dtype":"float32"})").ok(), "cannot write");
    check(write_file_atomic(fs::path(b_) / "config.json", R"({"dtype":"bfloat16"})").ok(), "cannot write");
    EXPECT_NE(refusal("adapter_config.json", R"({"r":8,"lora_alpha":16})", R"({"r":8,"lora_alpha":32})")
                  .find("b/adapter_config.json: lora_alpha is 32, but 16 in "),
              std::string::npos);
    fs::remove(fs::path(b_) / "adapter_config.json");
    const auto result = aggregate({"--out", out_, a_, b_});
    EXPECT_EQ(result.exit_code, 0) << result.err << "another dtype is no matter";
}

TEST_F(AggregateCommandTest, AProductTakesAdaptersOfOtherRanksAndAlphasAndSaysWhatIsLost) {
    const auto make_adapter = [&](const std::string& name, std::int64_t rank, const char* config) {
        const fs::path directory = temporary_.path() / name;
        fs::create_directories(directory);
        std::vector<safetensors::TensorInfo> tensors = {{"m.lora_A.weight", safetensors::DType::kF32, {rank, 3}, 0, 0},
                                                        {"m.lora_B.weight", safetensors::DType::kF32, {4, rank}, 0, 0}};
        std::string bytes = safetensors::make_header(tensors);
        for (std::int64_t i = 0; i < 7 * rank; ++i) {
            const auto value = static_cast<float>(std::sin(i * i + rank));
            bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
        }
        check(write_file_atomic(directory / "adapter_model.safetensors", bytes).ok(), "cannot write an adapter");
        check(write_file_atomic(directory / "adapter_config.json", config).ok(), "cannot write an adapter");
        return directory.string();
    };
    const std::string one = make_adapter("one", 1, R"({"peft_type":"LORA","r":1,"lora_alpha":2})");
    const std::string two = make_adapter("two", 2, R"({"peft_type":"LORA","r":2,"lora_alpha":3,"use_rslora":true})");
    const auto lossy = aggregate({"--strategy", "product", "--out", out_, "--json", one, two});
    ASSERT_EQ(lossy.exit_code, 0) << lossy.err;
    EXPECT_GT(json::parse(lossy.out)->at("relative_error"), 1e-3);
    EXPECT_EQ(read_file(fs::path(out_) / "adapter_config.json").value(),
              read_file(fs::path(one) / "adapter_config.json").value());
    const std::string three = make_adapter("three", 3, R"({"peft_type":"LORA","r":3})");
    const auto whole = aggregate({"--strategy", "product", "--base", three, "--out", out_ + "2", one, two});
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_NE(whole.out.find("relative error from reducing the product to this rank: "), std::string::npos)
        << whole.out;

    const auto refusal = [&](const std::string& second) {
        const auto result = aggregate({"--strategy", "product", "--out", out_ + "3", one, second});
        EXPECT_EQ(result.exit_code, 2) << result.out;
        EXPECT_FALSE(fs::exists(out_ + "3"));
        return result.err;
    };
    EXPECT_NE(refusal(a_).find("a has no adapter_config.json: product takes LoRA adapters"), std::string::npos);
    EXPECT_NE(refusal(make_adapter("dora", 1, R"({"peft_type":"LORA","r":1,"use_dora":true})")).find("use_dora"),
              std::string::npos);
    EXPECT_NE(refusal(make_adapter("zero", 1, R"({"peft_type":"LORA","r":1,"lora_alpha":0})")).find("lora_alpha"),
              std::string::npos);
    const auto mean = aggregate({"--out", out_ + "3", one, two});
    EXPECT_NE(mean.err.find("lora_alpha is 3, but 2"), std::string::npos) << mean.err;
}

TEST_F(AggregateCommandTest, WhatIsWrongIsNamedAndNothingIsWritten) {
    const std::string other = make_model("other", {1, 2, 3});
    const std::string spoilt = make_model("spoilt", {1, NAN});
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{"--strategy", "krum", "--out", out_, a_, b_}, "--strategy: unknown strategy \"krum\""},
        {{"--strategy", "fedavg", "--trim", "0.1", "--out", out_, a_, b_}, "--trim"},
        {{"--strategy", "trimmed_mean", "--trim", "0.7", "--out", out_, a_, b_}, "--trim"},
        {{"--strategy", "trimmed_mean", "--weights", "1,2", "--out", out_, a_, b_}, "weights"},
        {{"--clip", "2", "--out", out_, a_, b_}, "--clip needs --base"},
        {{"--out", out_, "--weights", "1", a_, b_}, "--weights: 1 given for 2 directories"},
        {{"--out", out_, "--steps", "1,2,3", a_, b_}, "--steps: 3 given for 2 directories"},
        {{"--out", out_, "--steps", "1,0", a_, b_}, "--steps"},
        {{"--out", out_, "--weights", "1,x", a_, b_}, "--weights"},
        {{"--out", out_, a_, other}, "\"w\""},
        {{"--out", out_, a_, spoilt}, "NaN"},
        {{"--out", out_}, "needs DIRECTORIES"},
        {{a_, b_}, "--out"},
    };
    for (const auto& [arguments, named] : cases) {
        const auto result = aggregate(arguments);
        EXPECT_EQ(result.exit_code, 2) << named;
        EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
        EXPECT_FALSE(fs::exists(out_)) << named;
    }
    const auto over = aggregate({"--out", b_, a_, b_});
    EXPECT_EQ(over.exit_code, 2) << "what is there stays";
    EXPECT_NE(over.err.find("--out"), std::string::npos) << over.err;
}

}  // namespace
}  // namespace atl::cli
