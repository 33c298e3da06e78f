#include "trainer/optim/chunk_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>

namespace atl::optim {
namespace {

constexpr std::int64_t kPage = StateFile::kPageBytes;
constexpr std::size_t kChunks = 11;

// Chunks of one to three records of a page each.
class ChunkStreamTest : public testing::Test {
  protected:
    ChunkStreamTest() : memory_(static_cast<std::size_t>(10 * kPage)) {
        std::vector<ChunkStream::Chunk> chunks;
        std::vector<std::int64_t> records;
        for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
            chunks.push_back({records.size(), 1 + chunk % 3});
            records.resize(records.size() + 1 + chunk % 3, kPage);
        }
        auto made = StateFile::create(directory_.path(), "state", records);
        check(made.ok(), "no file");
        file_ = std::make_unique<StateFile>(std::move(made).value());
        void* at = memory_.data();
        std::size_t room = memory_.size();
        auto* const begin = static_cast<std::byte*>(std::align(kPage, 1, at, room));
        stream_ = std::make_unique<ChunkStream>(*file_, chunks,
                                                std::array<std::byte*, 3>{begin, begin + 3 * kPage, begin + 6 * kPage});
    }

    TemporaryDirectory directory_;
    std::vector<std::byte> memory_;
    std::unique_ptr<StateFile> file_;
    std::unique_ptr<ChunkStream> stream_;
};

TEST_F(ChunkStreamTest, EveryChunkComesInOrderAndIsKept) {
    for (int round = 0; round < 20; ++round) {
        for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
            std::byte* const buffer = stream_->next();
            ASSERT_NE(buffer, nullptr);
            for (std::size_t record = 0; record < 1 + chunk % 3; ++record) {
                std::byte& first = buffer[record * kPage];
                const auto expected = static_cast<std::byte>(round == 0 ? 0 : chunk + record + round - 1);
                ASSERT_EQ(first, expected) << round << " " << chunk;
                first = static_cast<std::byte>(chunk + record + round);
            }
        }
        ASSERT_TRUE(stream_->finish().ok());
    }
}

std::set<std::string> threads() {
    std::set<std::string> ids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
        ids.insert(entry.path().filename());
    return ids;
}

TEST_F(ChunkStreamTest, TheSameTwoThreadsDoAllTransfers) {
    const std::set<std::string> before = threads();
    EXPECT_GE(before.size(), 3U);
    for (int round = 0; round < 3; ++round) {
        for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
            ASSERT_NE(stream_->next(), nullptr);
            ASSERT_EQ(threads(), before) << "no thread came or went";
        }
        ASSERT_TRUE(stream_->finish().ok());
    }
}

TEST_F(ChunkStreamTest, AfterAnErrorNoChunkComesAndTheEndSaysWhy) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code ignored;
        if (!std::filesystem::read_symlink(entry, ignored).string().starts_with(file_->path().string())) continue;
        const UniqueFd other(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
        ASSERT_EQ(::pwrite(other.get(), "x", 1, 7 * kPage), 1);  // in the fifth chunk
        break;
    }
    for (std::size_t chunk = 0; chunk < kChunks; ++chunk) EXPECT_EQ(stream_->next() != nullptr, chunk < 4) << chunk;
    const Status status = stream_->finish();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find(file_->path().string()), std::string::npos);
}

}  // namespace
}  // namespace atl::optim
