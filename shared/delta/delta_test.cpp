#include "shared/delta/delta.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/delta/base_digest.h"

namespace atl::delta {
namespace {

using safetensors::DType;
using safetensors::TensorInfo;

constexpr Format kFormats[] = {Format::kInt8, Format::kInt4};

float steps(Format format) {
    return format == Format::kInt8 ? 127.0F : 7.0F;
}

std::vector<float> random_values(std::size_t count, unsigned seed) {
    std::mt19937 dice(seed);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(static_cast<double>(dice()) / 0x1p31 - 1);
    return values;
}

// All blocks of the values, which become what rounding lost.
std::vector<std::byte> encode(Format format, std::vector<float>& values) {
    std::vector<std::byte> blocks(block_count(values.size()) * block_bytes(format));
    for (std::size_t at = 0, block = 0; at < values.size(); at += kBlockElements, ++block)
        EXPECT_TRUE(encode_block(format, std::span(values).subspan(at, std::min(kBlockElements, values.size() - at)),
                                 std::span(blocks).subspan(block * block_bytes(format), block_bytes(format))));
    return blocks;
}

std::vector<float> decode(Format format, std::span<const std::byte> blocks, std::size_t count) {
    std::vector<float> values(count);
    add_changes(format, blocks, 0, values);
    return values;
}

TEST(DeltaTest, AnElementIsWrongByAtMostHalfAScaleAndWhatIsLostIsTold) {
    for (const Format format : kFormats) {
        const std::vector<float> exact = random_values(1000, 1);
        std::vector<float> lost = exact;
        const std::vector<float> decoded = decode(format, encode(format, lost), exact.size());
        for (std::size_t block = 0; block < exact.size(); block += kBlockElements) {
            float most = 0;
            const std::size_t end = std::min(exact.size(), block + kBlockElements);
            for (std::size_t i = block; i < end; ++i) most = std::max(most, std::abs(exact[i]));
            for (std::size_t i = block; i < end; ++i) {
                EXPECT_LE(std::abs(decoded[i] - exact[i]), 0.5001F * most / steps(format)) << to_string(format);
                EXPECT_FLOAT_EQ(decoded[i] + lost[i], exact[i]);
            }
        }
    }
}

TEST(DeltaTest, WhatIsLostAndAddedToTheNextChangesIsNotLostForGood) {
    constexpr int kRounds = 200;
    const std::vector<float> change = random_values(300, 2);
    std::vector<float> error(change.size()), sum(change.size());
    for (int round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < change.size(); ++i) error[i] += change[i];
        const auto decoded = decode(Format::kInt4, encode(Format::kInt4, error), change.size());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i] / kRounds, change[i], 0.002) << i;
}

TEST(DeltaTest, TheBytesAreThoseOfTheReadme) {
    std::vector<float> values(130);
    values[0] = 7;
    values[1] = -7;
    values[2] = 2.4F;
    values[3] = -0.6F;
    values[129] = 0.5F;
    const std::vector<std::byte> blocks = encode(Format::kInt4, values);
    ASSERT_EQ(blocks.size(), 2 * 68U);
    const auto byte = [&](std::size_t at) { return std::to_integer<int>(blocks[at]); };
    float scale;
    std::memcpy(&scale, blocks.data(), sizeof scale);
    EXPECT_EQ(scale, 1);
    EXPECT_EQ(byte(4), 0x97) << "7 below, -7 above";
    EXPECT_EQ(byte(5), 0xF2) << "2 below, -1 above";
    EXPECT_FLOAT_EQ(values[2], 0.4F);
    std::memcpy(&scale, blocks.data() + 68, sizeof scale);
    EXPECT_FLOAT_EQ(scale, 0.5F / 7);
    EXPECT_EQ(byte(72), 0x70) << "the second element of the second block";
    EXPECT_EQ(byte(73), 0) << "filled";
}

TEST(DeltaTest, ZerosTinyAndHugeValuesKeepTheirBounds) {
    for (const Format format : kFormats) {
        for (const float most : {0.0F, 1e-45F, 3e-45F, 1e-38F, 3e38F}) {
            std::vector<float> values(kBlockElements, most);
            values[1] = -most;
            const std::vector<float> decoded = decode(format, encode(format, values), values.size());
            for (const float value : decoded)
                EXPECT_LE(std::abs(value), most * 1.001F) << to_string(format) << " " << most;
        }
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            std::vector<float> values(3, 1);
            values[1] = bad;
            std::vector<std::byte> block(block_bytes(format), std::byte{7});
            EXPECT_FALSE(encode_block(format, values, block));
            EXPECT_EQ(block, std::vector<std::byte>(block_bytes(format), std::byte{7}));
        }
    }
}

TEST(DeltaTest, AnyPartOfATensorDecodesToTheSameBits) {
    for (const Format format : kFormats) {
        std::vector<float> values = random_values(1000, 3);
        const std::vector<std::byte> blocks = encode(format, values);
        const std::vector<float> base = random_values(1000, 4);
        std::vector<float> whole = base;
        add_changes(format, blocks, 0, whole);
        for (std::size_t first = 0; first < whole.size(); first += 37) {
            std::vector<float> part(
                base.begin() + static_cast<std::ptrdiff_t>(first),
                base.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(first + 200, 1000)));
            add_changes(format, std::span(blocks).subspan(first / kBlockElements * block_bytes(format)), first, part);
            EXPECT_EQ(std::memcmp(part.data(), &whole[first], part.size() * sizeof(float)), 0) << first;
        }
    }
}

TEST(DeltaTest, AScaleThatIsNotFiniteGivesNoNumber) {
    std::vector<float> values(kBlockElements);
    std::vector<std::byte> block = encode(Format::kInt4, values);
    for (const float scale : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        std::memcpy(block.data(), &scale, sizeof scale);
        for (const float value : decode(Format::kInt4, block, kBlockElements)) EXPECT_FALSE(std::isfinite(value));
    }
}

TEST(DeltaTest, ATensorThatIsNotTheBasesIsRefusedByName) {
    const TensorInfo base{"w", DType::kBF16, {3, 100}, 0, 600};
    const auto refused = [&](const TensorInfo& packed, const TensorInfo& of_base, const std::string& words) {
        const Status status = check_tensor(Format::kInt4, of_base, packed);
        ASSERT_FALSE(status.ok()) << words;
        EXPECT_EQ(status.error().field, "w");
        EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
    };
    EXPECT_TRUE(check_tensor(Format::kInt4, base, packed_tensor(Format::kInt4, base)).ok());
    EXPECT_EQ(packed_tensor(Format::kInt4, base).shape, (std::vector<std::int64_t>{3, 68}));
    refused({"w", DType::kU8, {2, 68}, 0, 0}, base,
            "must be U8[3, 68], as the base's is BF16[3, 100], but it is U8[2, 68]");
    refused({"w", DType::kU8, {3, 132}, 0, 0}, base, "U8[3, 132]");
    refused({"w", DType::kI8, {3, 68}, 0, 0}, base, "I8[3, 68]");
    refused({"w", DType::kU8, {204}, 0, 0}, base, "U8[204]");
    refused(base, base, "BF16[3, 100]");
    for (const DType dtype : {DType::kI64, DType::kF64, DType::kU8})
        refused({"w", DType::kU8, {3, 68}, 0, 0}, {"w", dtype, {3, 100}, 0, 0}, "a delta cannot change");
    EXPECT_TRUE(check_tensor(Format::kInt8, {"w", DType::kF16, {0, 4}, 0, 0}, {"w", DType::kU8, {0, 132}, 0, 0}).ok());
}

TEST(DeltaTest, MetadataThatSayTooLittleAreNamed) {
    using Metadata = std::map<std::string, std::string>;
    const auto field = [](const Metadata& metadata) {
        safetensors::Header header;
        header.metadata = metadata;
        const auto described = describe(header);
        return described.ok() ? std::string(to_string(described->format)) + " of " + described->base
                              : described.error().field;
    };
    EXPECT_EQ(field({{kFormatKey, "int4"}, {kBaseKey, "abc"}}), "int4 of abc");
    EXPECT_EQ(field({{kFormatKey, "int8"}, {kBaseKey, "abc"}}), "int8 of abc");
    EXPECT_EQ(field({{kFormatKey, "int2"}, {kBaseKey, "abc"}}), kFormatKey);
    EXPECT_EQ(field({{kBaseKey, "abc"}}), kFormatKey);
    EXPECT_EQ(field({{kFormatKey, "int4"}}), kBaseKey);
    EXPECT_EQ(field({{kFormatKey, "int4"}, {kBaseKey, ""}}), kBaseKey);
}

// Mutated files are refused, or what they say can be decoded whole: delta_fuzz.cpp does the same for longer.
TEST(DeltaTest, NoMutationOfAFileIsReadBeyondItsTensors) {
    std::vector<TensorInfo> tensors = {{"w", DType::kU8, {3, 68}, 0, 0}, {"b", DType::kU8, {1, 68}, 0, 0}};
    const std::string sound =
        safetensors::make_header(tensors, {{kFormatKey, "int4"}, {kBaseKey, "x"}}) + std::string(4 * 68, '\x11');
    const std::vector<TensorInfo> base = {{"w", DType::kF32, {3, 100}, 0, 0}, {"b", DType::kF32, {5}, 0, 0}};
    std::mt19937 dice(5);
    int decoded = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string file = sound;
        for (unsigned i = 0; i < 1 + dice() % 3; ++i) file[dice() % file.size()] = static_cast<char>(dice() % 128);
        const auto length = safetensors::header_length(file, file.size());
        if (!length.ok()) continue;
        const auto header = safetensors::parse_header(std::string_view(file).substr(8, *length), file.size());
        if (!header.ok()) continue;
        const auto said = describe(*header);
        if (!said.ok()) continue;
        for (const TensorInfo& of_base : base) {
            const TensorInfo* packed = header->find(of_base.name);
            if (packed == nullptr || !check_tensor(said->format, of_base, *packed).ok()) continue;
            ASSERT_LE(header->data_begin + packed->end, file.size());
            std::vector<float> values(static_cast<std::size_t>(of_base.element_count()));
            const auto bytes = std::as_bytes(std::span(file)).subspan(header->data_begin + packed->begin);
            add_changes(said->format, bytes.first(packed->end - packed->begin), 0, values);
            ++decoded;
        }
    }
    EXPECT_GT(decoded, 0);
}

// The lines between ```python and ``` of README.md.
std::string reader_in_readme() {
    const std::string text = read_file(ATOLL_DELTA_README).value();
    const std::string begin = "```python\n";
    const std::size_t at = text.find(begin) + begin.size();
    return text.substr(at, text.find("```", at) - at);
}

TEST(DeltaTest, TheReaderInTheReadmePrintsTheSameNumbers) {
    const TemporaryDirectory directory;
    ASSERT_TRUE(write_file_atomic(directory.path() / "read.py", reader_in_readme()).ok());
    for (const Format format : kFormats) {
        std::vector<float> weights = random_values(200, 6), bias = random_values(7, 7);
        const std::vector<std::byte> packed[] = {encode(format, weights), encode(format, bias)};
        std::vector<TensorInfo> tensors = {packed_tensor(format, {"w", DType::kF32, {2, 100}, 0, 0}),
                                           packed_tensor(format, {"b", DType::kF32, {7}, 0, 0})};
        std::string file = safetensors::make_header(tensors, {{kFormatKey, to_string(format)}, {kBaseKey, "x"}});
        for (const auto& blocks : packed) file.append(reinterpret_cast<const char*>(blocks.data()), blocks.size());
        ASSERT_TRUE(write_file_atomic(directory.path() / kFile, file).ok());
        const auto ran = run_command({"python3", directory.path() / "read.py", directory.path() / kFile});
        if (!ran.ok()) GTEST_SKIP() << "there is no python3";
        ASSERT_EQ(ran->exit_code, 0) << ran->err;
        std::map<std::string, std::vector<float>> read;
        std::istringstream lines(ran->out);
        for (std::string line; std::getline(lines, line);) {
            std::istringstream words(line);
            std::string name;
            words >> name;
            for (double value; words >> value;) read[name].push_back(static_cast<float>(value));
        }
        EXPECT_EQ(read["w"], decode(format, packed[0], 2 * kBlockElements)) << to_string(format);
        EXPECT_EQ(read["b"], decode(format, packed[1], kBlockElements)) << to_string(format);
    }
}

TEST(DeltaTest, AModelsDigestIsTheSameHoweverItsTensorsLieInFiles) {
    const TemporaryDirectory directory;
    const auto write = [&](const std::string& name, std::vector<TensorInfo> tensors, const std::string& data) {
        EXPECT_TRUE(write_file_atomic(directory.path() / name, safetensors::make_header(tensors) + data).ok());
        const auto model = safetensors::Model::open_file(directory.path() / name);
        return model_sha256(model.value()).value();
    };
    const TensorInfo a{"a", DType::kF32, {1}, 0, 0}, b{"b", DType::kF16, {2}, 0, 0};
    const std::string digest = write("one.safetensors", {a, b}, "aaaabbbb");
    EXPECT_EQ(write("two.safetensors", {b, a}, "bbbbaaaa"), digest);
    EXPECT_NE(write("three.safetensors", {a, b}, "aaaabbbc"), digest);
    EXPECT_NE(write("four.safetensors", {{"a", DType::kF32, {1, 1}, 0, 0}, b}, "aaaabbbb"), digest);
}

}  // namespace
}  // namespace atl::delta
