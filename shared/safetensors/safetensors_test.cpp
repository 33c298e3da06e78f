#include "shared/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include <random>

namespace atl::safetensors {
namespace {

// Parses `header` as that of a file with `data_bytes` bytes of data.
Result<Header> parse(const std::string& header, std::uint64_t data_bytes) {
    return parse_header(header, 8 + header.size() + data_bytes);
}

// One tensor named "a" with this body; "a" as F32 [2] takes 8 bytes.
std::string with(const std::string& body) {
    return "{\"a\":{" + body + "}}";
}

std::string length_bytes(std::uint64_t value) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
    return bytes;
}

constexpr char kGood[] = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

TEST(SafetensorsHeaderTest, TensorsComeInTheOrderOfTheirOffsets) {
    const auto header =
        parse(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
              R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )",
              20);
    ASSERT_TRUE(header.ok()) << header.error().message;
    ASSERT_EQ(header->tensors.size(), 2U);
    EXPECT_EQ(header->tensors[0].name, "a");
    EXPECT_EQ(header->tensors[1].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(header->tensors[1].element_count(), 6);
    EXPECT_EQ(header->tensors[1].dtype, DType::kBF16);
    EXPECT_EQ(header->metadata.at("format"), "pt");
    EXPECT_EQ(header->data_size, 20U);
    EXPECT_NE(header->find("b"), nullptr);
    EXPECT_EQ(header->find("c"), nullptr);
}

TEST(SafetensorsHeaderTest, ScalarsAndEmptyTensorsAreSound) {
    const auto header = parse(R"({"e":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},)"
                              R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})",
                              8);
    ASSERT_TRUE(header.ok()) << header.error().message;
    EXPECT_EQ(header->tensors[0].name, "e");
    EXPECT_EQ(header->tensors[1].element_count(), 1);
}

struct BadHeader {
    const char* field;
    std::string header;
    std::uint64_t data_bytes;
    std::vector<std::string> values = {};  // that the message has
};

TEST(SafetensorsHeaderTest, EveryBadHeaderIsRefusedByWhatIsWrong) {
    const std::string good_b = R"("b":{"dtype":"F32","shape":[2],"data_offsets":)";
    const BadHeader cases[] = {
        {"header", "", 0},
        {"header", " " + with(kGood), 8},
        {"header", "\xef\xbb\xbf" + with(kGood), 8},
        {"header", "[]", 0},
        {"header", with(kGood) + "\n", 8},
        {"header", with(kGood) + "x", 8},
        {"header", "{\"a\":{", 0},
        {"header", "{\"a\":}", 0},
        {"header", "{} {}", 0},
        {"header", "{\"\xff\":{" + std::string(kGood) + "}}", 8},
        {"header", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},}", 8},
        {"a.dtype", with(R"("shape":[2],"data_offsets":[0,8])"), 8},
        {"a.shape", with(R"("dtype":"F32","data_offsets":[0,8])"), 8},
        {"a.data_offsets", with(R"("dtype":"F32","shape":[2])"), 8},
        {"a.dtype", with(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), 8, {"\"F31\""}},
        {"a", with(std::string(kGood) + R"(,"extra":1)"), 8, {"\"extra\""}},
        {"a.dtype", with(std::string(kGood) + R"(,"dtype":"F32")"), 8},
        {"a", "{\"a\":{" + std::string(kGood) + "},\"a\":{" + kGood + "}}", 8},
        {"__metadata__", R"({"__metadata__":{"x":"1","x":"1"}})", 0, {"\"x\""}},
        {"__metadata__", R"({"__metadata__":{},"__metadata__":{}})", 0},
        {"__metadata__", R"({"__metadata__":{"x":1}})", 0},
        {"__metadata__", R"({"__metadata__":[]})", 0},
        {"a", R"({"a":null})", 0},
        {"a", R"({"a":[]})", 0},
        {"a.dtype", with(R"("dtype":{})"), 0},
        {"a.shape", with(R"("shape":"2")"), 0},
        {"a.shape", with(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8},
        {"a.shape", with(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8},
        {"a.shape", with(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8},
        {"a.shape", with(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8])"), 8},
        {"a.shape", with(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), 8},
        // 2^62 × 4 × 4 bytes wraps to 0; 2^32 × 2^32 × 4 too.
        {"a.shape", with(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0},
        {"a.shape", with(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0},
        {"a.shape", with(R"("dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"), 0},
        {"a.shape",
         with(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"),
         1,
         {"16"}},
        {"a.data_offsets", with(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8},
        {"a.data_offsets", with(R"("dtype":"F32","shape":[0],"data_offsets":[0])"), 0},
        {"a.data_offsets", with(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8},
        {"a.data_offsets", with(R"("dtype":"F32","shape":[2],"data_offsets":[0,12])"), 12, {"12", "8"}},
        {"a", with(kGood), 7},
        {"header", with(kGood), 9, {"1"}},
        {"header", "{}", 5, {"5"}},
        {"b", "{\"a\":{" + std::string(kGood) + "}," + good_b + "[9,17]}}", 17},
        {"a", with(R"("dtype":"F32","shape":[2],"data_offsets":[1,9])"), 9},
        {"b", "{\"a\":{" + std::string(kGood) + "}," + good_b + "[4,12]}}", 12},
        {"b", "{\"a\":{" + std::string(kGood) + "}," + good_b + "[0,8]}}", 8},
        {"header", "{\"\":{" + std::string(kGood) + "}}", 8, {"\"\""}},
        {"header", "{\"..\":{" + std::string(kGood) + "}}", 8, {"\"..\""}},
        {"header", "{\"../a\":{" + std::string(kGood) + "}}", 8, {"\"../a\""}},
        {"header", "{\"a\\u0000b\":{" + std::string(kGood) + "}}", 8, {"\"a\\x00b\""}},
        {"header", "{\"\\u001b[2J\":{" + std::string(kGood) + "}}", 8, {"\"\\x1b[2J\""}},
        {"header", "{\"c:\\\\a\":{" + std::string(kGood) + "}}", 8, {"\"c:\\\\a\""}},
    };
    for (const BadHeader& bad : cases) {
        const auto result = parse(bad.header, bad.data_bytes);
        ASSERT_FALSE(result.ok()) << bad.header;
        EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(result.error().field, bad.field) << bad.header << "\n  says: " << result.error().message;
        for (const std::string& value : bad.values)
            EXPECT_NE(result.error().message.find(value), std::string::npos) << value << "\n" << result.error().message;
    }
}

TEST(SafetensorsHeaderTest, LyingLengthsAreRefused) {
    EXPECT_FALSE(header_length("", 0).ok());
    EXPECT_FALSE(header_length("1234567", 7).ok());
    EXPECT_FALSE(header_length(length_bytes(11), 18).ok()) << "one byte more than there is";
    EXPECT_EQ(header_length(length_bytes(10), 18).value(), 10U);
    EXPECT_FALSE(header_length(length_bytes(~0ULL), ~0ULL).ok()) << "8 + length wraps around";
    EXPECT_FALSE(header_length(length_bytes(~0ULL - 7), 100).ok());
    EXPECT_FALSE(header_length(length_bytes(kHeaderBytesMax + 1), 2 * kHeaderBytesMax).ok());
}

TEST(SafetensorsHeaderTest, AWrittenHeaderIsReadBackAligned) {
    std::vector<TensorInfo> tensors(2);
    tensors[0] = {"x", DType::kF16, {3}, 0, 0};
    tensors[1] = {"layers.0.ü", DType::kI32, {2, 2}, 0, 0};
    const std::string bytes = make_header(tensors, {{"format", "pt"}});
    EXPECT_EQ(bytes.size() % 8, 0U);
    const std::uint64_t file_size = bytes.size() + 6 + 16;
    EXPECT_EQ(header_length(bytes, file_size).value(), bytes.size() - 8);
    const auto header = parse_header(std::string_view(bytes).substr(8), file_size);
    ASSERT_TRUE(header.ok()) << header.error().message;
    EXPECT_EQ(header->tensors[1].name, "layers.0.ü");
    EXPECT_EQ(header->tensors[1].begin, 6U);
    EXPECT_EQ(header->data_begin, bytes.size());
}

// A mutated header is refused, or what it says is consistent with the file: the loaders rely on nothing else.
TEST(SafetensorsHeaderTest, NoMutationYieldsATensorOutsideTheFile) {
    const std::string seed =
        R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
        R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
    constexpr char kAlphabet[] = "0123456789[]{},:\"- eE.+abdtypeFU\\u";
    std::mt19937 random(20240607);
    int accepted = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string text = seed;
        const auto edits = 1 + random() % 3;
        for (unsigned edit = 0; edit < edits; ++edit) {
            const std::size_t at = random() % text.size();
            const char c = kAlphabet[random() % (sizeof kAlphabet - 1)];
            if (random() % 3 == 0) {
                text.erase(at, 1 + random() % 4);
            } else if (random() % 2 == 0) {
                text.insert(at, 1, c);
            } else {
                text[at] = c;
            }
            if (text.empty()) text = "{";
        }
        const auto result = parse(text, 32);
        if (!result.ok()) continue;
        ++accepted;
        std::uint64_t position = 0;
        for (const TensorInfo& tensor : result->tensors) {
            ASSERT_EQ(tensor.begin, position) << text;
            ASSERT_EQ(tensor.end - tensor.begin,
                      static_cast<std::uint64_t>(tensor.element_count() * size_bytes(tensor.dtype)))
                << text;
            position = tensor.end;
        }
        ASSERT_EQ(position, 32U) << text;
    }
    EXPECT_GT(accepted, 0) << "the mutations never leave a sound header: they test nothing";
}

}  // namespace
}  // namespace atl::safetensors
