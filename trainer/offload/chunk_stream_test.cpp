#include "trainer/offload/chunk_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

namespace atl::offload {
namespace {

constexpr std::int64_t kPage = StateFile::kPageBytes;
constexpr std::size_t kChunks = 11;

// Chunks of one to three records of a page each.
class ChunkStreamTest : public testing::Test {
  protected:
    ChunkStreamTest() : memory_(static_cast<std::size_t>(10 * kPage)) {
        std::vector<std::int64_t> records;
        for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
            chunks_.push_back({records.size(), 1 + chunk % 3});
            records.resize(records.size() + 1 + chunk % 3, kPage);
        }
        auto made = StateFile::create(directory_.path(), "state", records);
        check(made.ok(), "no file");
        file_ = std::make_unique<StateFile>(std::move(made).value());
        void* at = memory_.data();
        std::size_t room = memory_.size();
        auto* const begin = static_cast<std::byte*>(std::align(kPage, 1, at, room));
        buffers_ = {begin, begin + 3 * kPage, begin + 6 * kPage};
        stream_ = std::make_unique<ChunkStream>(*file_, chunks_, buffers_);
    }

    TemporaryDirectory directory_;
    std::vector<std::byte> memory_;
    std::array<std::byte*, ChunkStream::kBuffers> buffers_{};
    std::vector<ChunkStream::Chunk> chunks_;
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

// Its transfers end no sooner than the caller changes the chunk beside them: reading n + 1 and writing n − 1 wait until
// the caller has chunk n.
class HeldFile final : public StateFile {
  public:
    explicit HeldFile(StateFile file) : StateFile(std::move(file)) {}

    Status read(std::size_t first, std::size_t count, std::byte* buffer) const override {
        ATOLL_RETURN_IF_ERROR(wait_until_caller_has(reads_++));
        return StateFile::read(first, count, buffer);
    }
    Status write(std::size_t first, std::size_t count, const std::byte* buffer) override {
        ATOLL_RETURN_IF_ERROR(wait_until_caller_has(std::min(writes_++ + 2, kChunks)));
        return StateFile::write(first, count, buffer);
    }

    void caller_has(std::size_t chunks) {
        const std::lock_guard lock(mutex_);
        handed_out_ = chunks;
        wake_.notify_all();
    }

  private:
    Status wait_until_caller_has(std::size_t chunks) const {
        std::unique_lock lock(mutex_);
        if (wake_.wait_for(lock, std::chrono::minutes(3), [&] { return handed_out_ >= chunks; })) return {};
        return internal_error("the caller waited for a transfer instead of chunk " + std::to_string(chunks));
    }

    mutable std::size_t reads_ = 0;  // of the thread that reads
    std::size_t writes_ = 0;         // of the one that writes
    mutable std::mutex mutex_;
    mutable std::condition_variable wake_;
    std::size_t handed_out_ = 0;
};

TEST_F(ChunkStreamTest, TheNextChunkIsReadAndTheLastOneWrittenWhileOneIsChanged) {
    HeldFile file(std::move(*file_));
    ChunkStream stream(file, chunks_, buffers_);
    for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
        ASSERT_NE(stream.next(), nullptr) << chunk;
        file.caller_has(chunk + 1);
    }
    const Status finished = stream.finish();
    EXPECT_TRUE(finished.ok()) << finished.error().message;
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
    EXPECT_EQ(status.error().field, file_->path());
}

}  // namespace
}  // namespace atl::offload
