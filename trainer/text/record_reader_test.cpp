#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/base/testing/sanitizers.h"
#include "trainer/text/rows.h"

namespace atl::text {
namespace {

std::string gzip(const std::string& text, const std::filesystem::path& path) {
    gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    ::gzclose(file);
    return read_file(path).value();
}

std::string zstd(const std::string& text) {
    std::string bytes(::ZSTD_compressBound(text.size()), '\0');
    bytes.resize(::ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 3));
    return bytes;
}

struct Lines {
    std::vector<std::string> texts;  // "file:line text"
    std::string error;
};

// As lines of text.
Lines read_all(const std::vector<std::filesystem::path>& paths, std::size_t block_bytes) {
    Lines lines;
    std::vector<InputFile> inputs;
    for (const auto& path : paths) inputs.push_back({path, InputFormat::kLines});
    RecordReader reader(inputs, {.block_bytes = block_bytes});
    for (;;) {
        auto block = reader.next();
        if (!block.ok()) {
            lines.error = block.error().message;
            return lines;
        }
        if (!block->has_value()) return lines;
        const std::string file = std::to_string((*block)->file);
        const Status used = for_each_row(**block, file, true, [&](const nlohmann::json& row, const std::string& where) {
            lines.texts.push_back(where + " " + row.at("text").get<std::string>());
            return Status();
        });
        check(used.ok(), "a line of text is a row");
    }
}

class RecordReaderTest : public testing::Test {
  protected:
    std::filesystem::path write(const std::string& name, const std::string& bytes) {
        const auto path = directory_.path() / name;
        check(write_file_atomic(path, bytes).ok(), "cannot write a test's file");
        return path;
    }
    TemporaryDirectory directory_;
};

TEST_F(RecordReaderTest, LinesAreNumberedWhateverTheBlockSize) {
    const auto first = write("a", "one\r\n\n  \nfour is long, longer than a block\nfive");
    const auto empty = write("b", "");
    const auto last = write("c", "x\n");
    const std::vector<std::string> expected = {"0:1 one", "0:4 four is long, longer than a block", "0:5 five", "2:1 x"};
    for (const std::size_t block_bytes : {1U, 2U, 7U, 16U, 1000U})
        EXPECT_EQ(read_all({first, empty, last}, block_bytes).texts, expected) << block_bytes;
}

TEST_F(RecordReaderTest, ABlockSaysWhatPartOfAllFilesIsDoneWithIt) {
    const std::string line = std::string(99, 'a') + "\n";
    RecordReader reader({{write("a", line + line)}, {write("b", line + line)}}, {.block_bytes = 100});
    for (const double fraction : {0.25, 0.5, 0.75, 1.0}) {
        const auto block = reader.next().value();
        ASSERT_TRUE(block.has_value());
        EXPECT_EQ(block->fraction, fraction);
    }
}

TEST_F(RecordReaderTest, CompressedFilesReadLikePlainOnesAlsoInSeveralMembers) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i) + "\n";
    const auto expected = read_all({write("plain", text)}, 4096).texts;
    ASSERT_EQ(expected.size(), 5000U);
    const std::string half = text.substr(0, 20000);
    const std::string rest = text.substr(20000);
    EXPECT_EQ(read_all({write("a.gz", gzip(text, directory_.path() / "z"))}, 4096).texts, expected);
    EXPECT_EQ(read_all({write("b.zst", zstd(text))}, 4096).texts, expected);
    EXPECT_EQ(read_all({write("b.zst", zstd(half) + zstd(rest))}, 4096).texts, expected);
    const auto second = gzip(rest, directory_.path() / "z");
    EXPECT_EQ(read_all({write("a.gz", gzip(half, directory_.path() / "z") + second)}, 4096).texts, expected);
}

TEST_F(RecordReaderTest, ZstdFilesMayBeginWithAFrameToSkipAsThoseOfPzstdDo) {
    // A magic number of 0x184D2A50 to 5F and the size of what follows, both little endian: RFC 8878, 3.1.2.
    for (const char kind : {'\x50', '\x5f'})
        EXPECT_EQ(
            read_all({write("p.zst", kind + std::string("\x2a\x4d\x18\x04\0\0\0abcd", 11) + zstd("one\n"))}, 64).texts,
            std::vector<std::string>{"0:1 one"});
}

// What `zstd --long=31` makes of "one\n": a frame of one raw block whose window is 2 GiB (RFC 8878, 3.1.1).
TEST_F(RecordReaderTest, ZstdFramesMayHaveTheLargestWindow) {
    const std::string frame("\x28\xb5\x2f\xfd\x00\xa8\x21\x00\x00one\n", 13);
    EXPECT_EQ(read_all({write("long.zst", frame)}, 64).texts, std::vector<std::string>{"0:1 one"});
}

// Such a window is memory: where it is not there, this is said.
TEST_F(RecordReaderTest, AWindowThatDoesNotFitInMemoryIsToldAsThat) {
    ATOLL_SKIP_IF_SANITIZED();
    const auto file = write("long.zst", std::string("\x28\xb5\x2f\xfd\x00\xa8\x21\x00\x00one\n", 13));
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit limit{1U << 30, 1U << 30};
        if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
        const std::string said = read_all({file}, 64).error;
        ::_exit(said.find("long.zst: there is not the memory for the window") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(RecordReaderTest, CutOffOrDamagedCompressedFilesAreErrorsThatNameTheFile) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i * 7919) + "\n";
    const std::string gz = gzip(text, directory_.path() / "z");
    const std::string zst = zstd(text);
    EXPECT_NE(read_all({write("cut.gz", gz.substr(0, gz.size() / 2))}, 4096).error.find("cut.gz: "), std::string::npos);
    EXPECT_NE(read_all({write("cut.zst", zst.substr(0, zst.size() / 2))}, 4096).error.find("cut.zst: "),
              std::string::npos);
    std::string damaged = gz;
    damaged[gz.size() / 2] = static_cast<char>(~damaged[gz.size() / 2]);
    EXPECT_NE(read_all({write("bad.gz", damaged)}, 4096).error.find("bad.gz: "), std::string::npos);
    EXPECT_NE(read_all({directory_.path() / "missing"}, 4096).error.find("missing"), std::string::npos);
}

TEST_F(RecordReaderTest, WhatFollowsAGzipMemberIsAnotherMemberOrZerosOrAnError) {
    std::string text;
    for (int i = 0; i < 500; ++i) text += "line " + std::to_string(i) + "\n";
    const std::string member = gzip(text, directory_.path() / "z");
    EXPECT_EQ(read_all({write("padded.gz", member + std::string(700, '\0'))}, 4096).texts.size(), 500U);
    std::string flipped = member;
    flipped[0] ^= 1;
    for (const std::string& tail :
         {flipped, member.substr(0, 1), member.substr(0, 5), std::string("garbage"), std::string(3, '\0') + "garbage"})
        EXPECT_NE(read_all({write("tail.gz", member + tail)}, 4096).error.find("tail.gz: "), std::string::npos) << tail;
}

}  // namespace
}  // namespace atl::text
