#include "trainer/importer/pickle.h"

#include <gtest/gtest.h>

#include <random>

#include "trainer/importer/state_dict.h"
#include "trainer/importer/torch_zip.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace atl::importer {
namespace {

using namespace std::string_literals;

// Pieces of pickles.
std::string text(const std::string& value) {
    return "X"s + static_cast<char>(value.size()) + "\0\0\0"s + value;
}
std::string number(int value) {
    return "K"s + static_cast<char>(value);
}
std::string numbers(const std::vector<int>& values) {
    std::string items;
    for (const int value : values) items += number(value);
    return "(" + items + "t";
}
std::string storage(const std::string& kind, const std::string& key, int elements) {
    return "(" + text("storage") + "ctorch\n" + kind + "\n" + text(key) + text("cpu") + number(elements) + "tQ";
}
std::string tensor(const std::string& data, int offset, const std::vector<int>& shape, const std::vector<int>& strides,
                   const std::string& metadata = {}) {
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + data + number(offset) + numbers(shape) + numbers(strides) + "\x89" +
           "ccollections\nOrderedDict\n)R" + metadata + "tR";
}
std::string pickle(const std::string& body) {
    return "\x80\x02" + body + ".";
}
std::string dictionary(const std::string& items) {
    return pickle("}(" + items + "u");
}

Result<std::vector<StoredTensor>> parse_pickle(const std::string& bytes) {
    return read_state_dict(std::as_bytes(std::span(bytes)));
}
std::string pickle_error(const std::string& bytes) {
    const auto tensors = parse_pickle(bytes);
    return tensors.ok() ? "no error" : tensors.error().message;
}

std::string golden_pickle() {
    const auto zip = StoredZip::open(std::string(ATOLL_FIXTURES) + "/torch/single/pytorch_model.bin").value();
    for (const auto& [name, bytes] : zip.members()) {
        if (name.ends_with("data.pkl")) return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    return {};
}

// torch.save of torch._neg_view(-v) has the bytes of v.
TEST(PickleTest, ANegatedViewIsRefused) {
    const auto with = [](const std::string& metadata) {
        return pickle_error(dictionary(text("w") + tensor(storage("FloatStorage", "0", 4), 0, {2}, {1}, metadata)));
    };
    EXPECT_EQ(with("}"), "no error");
    EXPECT_EQ(with("N"), "no error");
    EXPECT_NE(with("}(" + text("neg") + "\x88u").find("resolve_neg()"), std::string::npos);
}

TEST(PickleTest, ATensorIsAPieceOfAStorage) {
    const auto tensors =
        parse_pickle(dictionary(text("w") + tensor(storage("BFloat16Storage", "7", 20), 3, {2, 4}, {4, 1}))).value();
    ASSERT_EQ(tensors.size(), 1U);
    EXPECT_EQ(tensors[0].name, "w");
    EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{2, 4}));
    EXPECT_EQ(tensors[0].dtype, weights::DType::kBF16);
    EXPECT_EQ(tensors[0].storage, "7");
    EXPECT_EQ(tensors[0].begin, 3);
    EXPECT_EQ(tensors[0].element_count, 8);
    EXPECT_EQ(tensors[0].storage_elements, 20);
}

// As parameters of transformers are saved, which marks them; what it marks them with says nothing about the tensor.
TEST(PickleTest, AParameterWithAttributesIsItsTensor) {
    const auto parameter = [](const std::string& arguments) {
        return dictionary(text("w") + "ctorch._utils\n_rebuild_parameter_with_state\n(" + arguments + "tR");
    };
    const std::string hooks = "ccollections\nOrderedDict\n)R", state = "}" + text("_is_hf_initialized") + "\x88s";
    const std::string w = tensor(storage("FloatStorage", "0", 4), 0, {2, 2}, {2, 1});
    const auto tensors = parse_pickle(parameter(w + "\x88" + hooks + state)).value();
    ASSERT_EQ(tensors.size(), 1U);
    EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{2, 2}));
    EXPECT_NE(pickle_error(parameter(w + "\x88" + hooks)).find("_rebuild_parameter_with_state"), std::string::npos);
}

TEST(PickleTest, ClassesThatTensorsDoNotNeedAreRefusedByName) {
    EXPECT_NE(pickle_error(pickle("cos\nsystem\n" + text("true") + "\x85R")).find("\"os.system\""), std::string::npos)
        << pickle_error(pickle("cos\nsystem\n" + text("true") + "\x85R"));
    for (const char* name :
         {"builtins\neval", "posix\nsystem", "torch\nload", "torch._utils\n_rebuild_tensor_v3",
          "torch.storage\n_load_from_bytes", "collections\ndeque", "\n", "torch\nFloatStorage\x01"}) {
        EXPECT_NE(pickle_error(pickle("c"s + name + "\n)R")).find("byte 2"), std::string::npos) << name;
    }
    // A class that is allowed, used as another one.
    EXPECT_NE(pickle_error(pickle("ctorch\nFloatStorage\n)R")).find("\"torch.FloatStorage\""), std::string::npos);
    EXPECT_NE(pickle_error(pickle("ctorch._utils\n_rebuild_tensor_v2\n)R")).find("_rebuild_tensor_v2"),
              std::string::npos);
}

TEST(PickleTest, OpcodesThatTensorsDoNotNeedAreRefusedByName) {
    const std::string needed = "(.NGJKMQRXabcehjqrstu)]}\x80\x85\x86\x87\x88\x89\x8a";
    int refused = 0;
    for (int code = 0; code < 256; ++code) {
        if (needed.find(static_cast<char>(code)) != std::string::npos) continue;
        const std::string error = pickle_error("\x80\x02"s + static_cast<char>(code) + "0123456789\n\n.");
        EXPECT_EQ(error.find("byte 2: "), 0U) << code << ": " << error;
        ++refused;
    }
    EXPECT_EQ(refused, 256 - 31);
    EXPECT_NE(pickle_error("\x80\x02\x93").find("STACK_GLOBAL (0x93)"), std::string::npos);
    EXPECT_NE(pickle_error("\x80\x04.").find("protocol"), std::string::npos);
}

TEST(PickleTest, TensorsThatDoNotFitTheirStorageAreRefusedByName) {
    const auto with = [](int offset, const std::vector<int>& shape, const std::vector<int>& strides) {
        return pickle_error(dictionary(text("w") + tensor(storage("FloatStorage", "0", 8), offset, shape, strides)));
    };
    EXPECT_EQ(with(0, {2, 4}, {4, 1}), "no error");
    EXPECT_EQ(with(5, {0, 4}, {9, 9}), "no error");
    EXPECT_EQ(with(0, {2, 1, 4}, {4, 77, 1}), "no error");  // the stride of one element says nothing
    EXPECT_NE(with(1, {2, 4}, {4, 1}).find("\"w\""), std::string::npos);
    EXPECT_NE(with(9, {}, {}).find("\"w\""), std::string::npos);
    EXPECT_NE(with(0, {4, 2}, {1, 4}).find("\"w\""), std::string::npos);
    EXPECT_NE(with(0, {2, 4}, {1}).find("\"w\""), std::string::npos);
    EXPECT_NE(with(0, {255, 255, 255, 255, 255, 255, 255, 255, 255}, {1}).find("\"w\""), std::string::npos);
}

TEST(PickleTest, WhatIsNoDictionaryOfTensorsIsRefused) {
    const std::string one = tensor(storage("FloatStorage", "0", 8), 0, {8}, {1});
    EXPECT_NE(pickle_error(pickle("N")).find("None"), std::string::npos);
    EXPECT_NE(pickle_error(dictionary(text("epoch") + number(3))).find("\"epoch\""), std::string::npos);
    EXPECT_NE(pickle_error(dictionary(text("model") + "}")).find("\"model\""), std::string::npos);
    EXPECT_NE(pickle_error(dictionary(number(1) + one)), "no error");
    EXPECT_NE(pickle_error(dictionary(text("w") + one + text("w") + one)).find("\"w\""), std::string::npos);
    const std::string other = tensor(storage("HalfStorage", "0", 8), 0, {8}, {1});
    EXPECT_NE(pickle_error(dictionary(text("v") + one + text("w") + other)).find("\"w\""), std::string::npos);
    EXPECT_EQ(pickle_error(pickle("}")), "no error");
    EXPECT_NE(pickle_error(pickle("}") + "x"), "no error");
}

TEST(PickleTest, CyclesAndMissingValuesDoNoHarm) {
    EXPECT_NE(pickle_error(pickle("]q\x01h\x01"
                                  "a")),
              "no error");
    for (const char* body : {"t",
                             "R",
                             "s",
                             "u",
                             "a",
                             "e",
                             "b",
                             "Q",
                             "q\x01",
                             "h\x05",
                             "\x85",
                             "(((",
                             "NN",
                             "NR",
                             "N)R",
                             "NQ",
                             "N}b",
                             "}Nb",
                             "NNs",
                             "(Nu",
                             "\x8a\x09"
                             "123456789"}) {
        EXPECT_NE(pickle_error(pickle(body)).find("byte "), std::string::npos) << body;
    }
}

TEST(PickleTest, APickleThatIsCutOffAnywhereIsRefused) {
    const std::string whole = golden_pickle();
    ASSERT_TRUE(parse_pickle(whole).ok());
    for (std::size_t size = 0; size < whole.size(); ++size)
        EXPECT_FALSE(parse_pickle(whole.substr(0, size)).ok()) << size;
}

// The fuzzer's function on changed copies of a real pickle; `pickle_fuzz` searches longer and cleverer.
TEST(PickleTest, DamagedPicklesAreRefusedOrSound) {
    const std::string whole = golden_pickle();
    std::mt19937 random(7);
    const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
    int sound = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string bytes = whole;
        for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
            const std::size_t at = below(bytes.size());
            switch (below(4)) {
                case 0:
                    bytes[at] = static_cast<char>(random());
                    break;
                case 1:
                    bytes.erase(at, 1 + below(8));
                    break;
                case 2:
                    bytes.insert(at, whole, below(whole.size()), 1 + below(32));
                    break;
                default:
                    bytes[at] = whole[below(whole.size())];
            }
        }
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
        sound += parse_pickle(bytes).ok();
    }
    EXPECT_GT(sound, 100);  // the changes are small enough to get past the first check
}

}  // namespace
}  // namespace atl::importer
