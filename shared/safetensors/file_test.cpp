#include "shared/safetensors/file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"

namespace atl::safetensors {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

// A file with U8 tensors of these names and contents.
void write_tensors(const std::filesystem::path& path, const std::map<std::string, std::string>& tensors) {
    std::vector<TensorInfo> infos;
    for (const auto& [name, bytes] : tensors)
        infos.push_back({name, DType::kU8, {static_cast<std::int64_t>(bytes.size())}, 0, 0});
    auto writer = Writer::create(path, infos);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    for (const auto& [name, bytes] : tensors) ASSERT_TRUE(writer->append(as_bytes(bytes)).ok());
    ASSERT_TRUE(writer->finish().ok());
}

void write_index(const std::filesystem::path& directory, const std::map<std::string, std::string>& weight_map) {
    const nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}};
    ASSERT_TRUE(write_file_atomic(directory / "model.safetensors.index.json", index.dump()).ok());
}

std::string text_of(const File& file, const TensorInfo& tensor) {
    const auto bytes = file.bytes(tensor);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A bad index is named, and in it what is wrong.
void expect_bad_index(const std::filesystem::path& directory, const std::vector<std::string>& names = {}) {
    const auto model = Model::open(directory);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(model.error().field, (directory / "model.safetensors.index.json").string());
    for (const std::string& name : names)
        EXPECT_NE(model.error().message.find(name), std::string::npos) << name << "\n" << model.error().message;
}

TEST(SafetensorsFileTest, WhatIsWrittenInPiecesIsReadBack) {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "a.safetensors";
    std::string large(3'000'000, 'z');
    large[1'500'000] = 'y';
    auto writer = Writer::create(path, {{"small", DType::kU8, {3}, 0, 0}, {"large", DType::kU8, {3'000'000}, 0, 0}});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->append(as_bytes("ab")).ok());
    ASSERT_TRUE(writer->append(as_bytes("c" + large.substr(0, 2'000'000))).ok());
    ASSERT_TRUE(writer->append(as_bytes(large.substr(2'000'000))).ok());
    ASSERT_TRUE(writer->finish().ok());
    const auto file = File::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(text_of(*file, *file->header().find("small")), "abc");
    EXPECT_EQ(text_of(*file, *file->header().find("large")), large);
}

TEST(SafetensorsFileTest, AnUnfinishedFileLeavesNothing) {
    const TemporaryDirectory directory;
    {
        auto writer = Writer::create(directory.path() / "a", {{"x", DType::kU8, {3}, 0, 0}});
        ASSERT_TRUE(writer.ok());
        ASSERT_TRUE(writer->append(as_bytes("ab")).ok());
        EXPECT_FALSE(writer->finish().ok()) << "a byte is missing";
    }
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SafetensorsFileTest, TheWriterRefusesWhatTheReaderWould) {
    const TemporaryDirectory directory;
    EXPECT_FALSE(Writer::create(directory.path() / "a", {{"../x", DType::kU8, {1}, 0, 0}}).ok());
    EXPECT_FALSE(
        Writer::create(directory.path() / "a", {{"x", DType::kU8, {1}, 0, 0}, {"x", DType::kU8, {1}, 0, 0}}).ok());
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SafetensorsFileTest, ATruncatedFileIsRefusedByName) {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "model.safetensors";
    write_tensors(path, {{"x", "0123456789"}});
    const std::string whole = read_file(path).value();
    for (const std::size_t size : {whole.size() - 1, std::size_t{20}, std::size_t{8}, std::size_t{7}, std::size_t{0}}) {
        ASSERT_TRUE(write_file_atomic(path, whole.substr(0, size)).ok());
        const auto file = File::open(path);
        ASSERT_FALSE(file.ok()) << size;
        EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(file.error().field, path.string());
        EXPECT_NE(file.error().message.find("model.safetensors: "), std::string::npos);
    }
    EXPECT_FALSE(File::open(directory.path()).ok()) << "a directory is no file";
}

TEST(SafetensorsModelTest, ShardsAreFoundThroughTheIndex) {
    const TemporaryDirectory directory;
    write_tensors(directory.path() / "model-00001-of-00002.safetensors", {{"a", "1"}, {"b", "22"}});
    write_tensors(directory.path() / "model-00002-of-00002.safetensors", {{"c", "333"}});
    write_index(directory.path(), {{"a", "model-00001-of-00002.safetensors"},
                                   {"b", "model-00001-of-00002.safetensors"},
                                   {"c", "model-00002-of-00002.safetensors"}});
    auto opened = Model::open(directory.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Model model = std::move(opened).value();
    EXPECT_EQ(model.entries().size(), 3U);
    ASSERT_NE(model.find("c"), nullptr);
    EXPECT_EQ(text_of(*model.find("c")->file, *model.find("c")->tensor), "333");
    EXPECT_EQ(model.find("d"), nullptr);
}

TEST(SafetensorsModelTest, AnIndexThatLiesIsRefused) {
    const TemporaryDirectory directory;
    write_tensors(directory.path() / "one.safetensors", {{"a", "1"}, {"b", "22"}});
    write_tensors(directory.path() / "two.safetensors", {{"c", "333"}});
    EXPECT_EQ(Model::open(directory.path()).error().code, ErrorCode::kNotFound);
    write_index(directory.path(), {{"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "three.safetensors"}});
    expect_bad_index(directory.path(), {"\"three.safetensors\""});
    write_index(directory.path(), {{"a", "one.safetensors"}, {"c", "two.safetensors"}});
    expect_bad_index(directory.path(), {"\"b\""});
    write_index(directory.path(), {{"a", "one.safetensors"}, {"b", "two.safetensors"}, {"c", "two.safetensors"}});
    expect_bad_index(directory.path(), {"\"b\"", "\"one.safetensors\""});
    write_index(
        directory.path(),
        {{"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "two.safetensors"}, {"d", "two.safetensors"}});
    expect_bad_index(directory.path(), {"\"d\"", "\"two.safetensors\""});
    write_index(directory.path(), {{"a", "../one.safetensors"}});
    expect_bad_index(directory.path(), {"\"a\""});
    write_index(directory.path(), {});
    expect_bad_index(directory.path(), {"weight_map"});
    const auto index = directory.path() / "model.safetensors.index.json";
    ASSERT_TRUE(write_file_atomic(index, R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})").ok());
    expect_bad_index(directory.path(), {"\"a\""});
    ASSERT_TRUE(write_file_atomic(index, R"({"weight_map":{"a":)").ok());
    expect_bad_index(directory.path());
}

}  // namespace
}  // namespace atl::safetensors
