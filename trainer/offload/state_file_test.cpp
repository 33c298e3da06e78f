#include "trainer/offload/state_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <numeric>
#include <optional>

namespace atl::offload {
namespace {

constexpr std::array<std::int64_t, 4> kRecords = {5000, 4096, 1, 12000};

// Memory that begins at a page.
class Pages {
  public:
    explicit Pages(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes + StateFile::kPageBytes)) {}
    std::byte* data() {
        void* at = bytes_.data();
        std::size_t room = bytes_.size();
        return static_cast<std::byte*>(std::align(StateFile::kPageBytes, 1, at, room));
    }

  private:
    std::vector<std::byte> bytes_;
};

// Opens again, by its descriptor, the file that has lost its name.
UniqueFd open_again(const std::filesystem::path& path) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code ignored;
        if (std::filesystem::read_symlink(entry, ignored).string().starts_with(path.string())) {
            return UniqueFd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
        }
    }
    return {};
}

class StateFileTest : public testing::Test {
  protected:
    void SetUp() override {
        auto made = StateFile::create(directory_.path(), "state", kRecords);
        ASSERT_TRUE(made.ok()) << made.error().message;
        file_.emplace(std::move(made).value());
    }
    // Byte i of record r becomes r + i.
    void fill() {
        for (std::size_t record = 0; record < kRecords.size(); ++record) {
            const auto size = static_cast<std::size_t>(StateFile::padded(kRecords[record]));
            for (std::size_t i = 0; i < size; ++i) pages_.data()[i] = static_cast<std::byte>(record + i);
            ASSERT_TRUE(file_->write(record, 1, pages_.data()).ok());
        }
    }

    TemporaryDirectory directory_;
    std::optional<StateFile> file_;
    Pages pages_{1 << 16};
};

TEST_F(StateFileTest, RecordsBeginAsZerosAndKeepWhatIsWritten) {
    ASSERT_TRUE(file_->read(0, 4, pages_.data()).ok());
    for (int i = 0; i < 7 * 4096; ++i) ASSERT_EQ(pages_.data()[i], std::byte{0});
    fill();
    ASSERT_TRUE(file_->read(1, 3, pages_.data()).ok());
    EXPECT_EQ(pages_.data()[9], static_cast<std::byte>(1 + 9));
    EXPECT_EQ(pages_.data()[4096], static_cast<std::byte>(2));
    EXPECT_EQ(pages_.data()[2 * 4096 + 11999], static_cast<std::byte>(3 + 11999));
}

TEST_F(StateFileTest, HasNoNameSoThatNothingIsLeftOfIt) {
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
    EXPECT_TRUE(file_->path().string().starts_with((directory_.path() / "state.").string()));
}

TEST_F(StateFileTest, AByteThatChangedOnTheDiskIsFoundAndNamed) {
    fill();
    const UniqueFd other = open_again(file_->path());
    ASSERT_TRUE(other.valid());
    const char wrong = 77;  // in the second page of the first record
    ASSERT_EQ(::pwrite(other.get(), &wrong, 1, 4100), 1);
    const Status read = file_->read(0, 1, pages_.data());
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().field, file_->path());
    EXPECT_NE(read.error().message.find("8192"), std::string::npos) << "the end of the record";
    EXPECT_TRUE(file_->read(1, 3, pages_.data()).ok()) << "the other records are as they were";
    fill();
    EXPECT_TRUE(file_->read(0, 4, pages_.data()).ok()) << "written anew";
}

TEST_F(StateFileTest, AnEndThatComesEarlyIsNamed) {
    const UniqueFd other = open_again(file_->path());
    ASSERT_EQ(::ftruncate(other.get(), 8192), 0);
    EXPECT_TRUE(file_->read(0, 1, pages_.data()).ok());
    const Status read = file_->read(0, 2, pages_.data());
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::kInternal);
    EXPECT_EQ(read.error().field, file_->path());
}

TEST_F(StateFileTest, AnErrorOfTheDeviceIsNamed) {
    const UniqueFd full(::open("/dev/full", O_RDWR | O_CLOEXEC));
    const UniqueFd other = open_again(file_->path());
    for (int fd = 3; fd < 64; ++fd) {  // every descriptor of the file becomes one of a full disk
        std::error_code ignored;
        const auto link = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored);
        if (!link.string().starts_with(file_->path().string())) continue;
        ASSERT_EQ(::dup2(full.get(), fd), fd);
    }
    const Status written = file_->write(0, 1, pages_.data());
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().code, ErrorCode::kInsufficientStorage);
    EXPECT_EQ(written.error().field, file_->path());
}

TEST(StateFileCreateTest, AMissingDirectoryIsNamed) {
    const auto made = StateFile::create("/nowhere/at/all", "state", kRecords);
    ASSERT_FALSE(made.ok());
    EXPECT_TRUE(made.error().field.starts_with("/nowhere/at/all/state")) << made.error().field;
    EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
}

TEST(StateFileCreateTest, WhatThereIsNoRoomForIsRefusedAtOnce) {
    const TemporaryDirectory directory;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{16384, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto made = StateFile::create(directory.path(), "state", kRecords);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_FALSE(made.ok());
    EXPECT_TRUE(made.error().field.starts_with((directory.path() / "state.").string())) << made.error().field;
    EXPECT_NE(made.error().message.find("28672"), std::string::npos) << made.error().message;
}

TEST(PageChecksumTest, EveryFlippedBitIsSeen) {
    std::vector<std::byte> page(4096);
    std::iota(reinterpret_cast<unsigned char*>(page.data()), reinterpret_cast<unsigned char*>(page.data()) + 4096, 0);
    const std::uint64_t sum = page_checksum(page);
    for (std::size_t bit = 0; bit < 8 * page.size(); ++bit) {
        page[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        ASSERT_NE(page_checksum(page), sum) << bit;
        // Also together with the sign of another number of that lane, which a plain product would let cancel out.
        if (bit % 64 == 63) {
            page[(bit / 8 + 32) % 4096] ^= std::byte{0x80};
            ASSERT_NE(page_checksum(page), sum) << bit;
            page[(bit / 8 + 32) % 4096] ^= std::byte{0x80};
        }
        page[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    EXPECT_EQ(page_checksum(page), sum);
}

}  // namespace
}  // namespace atl::offload
