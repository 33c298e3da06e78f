#include "shared/base/staged_directory.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

namespace fs = std::filesystem;

class StagedDirectoryTest : public testing::Test {
  protected:
    static void write(const fs::path& file, const std::string& text) {
        ASSERT_TRUE(write_file_atomic(file, text).ok());
    }
    static bool is_ours(const std::string& name) { return name.starts_with("our"); }

    TemporaryDirectory directory_;
    const fs::path out_ = directory_.path() / "out";
};

TEST_F(StagedDirectoryTest, NewFilesTakeThePlaceOfOldOnesTogether) {
    fs::create_directory(out_);
    for (const char* name : {"our_gate", "our_old", "other"}) write(out_ / name, "old");
    {
        auto staged = StagedDirectory::create(out_).value();
        for (const char* name : {"our_gate", "our_new"}) write(staged.path() / name, "new");
        EXPECT_EQ(read_file(out_ / "our_gate").value(), "old") << "until all are put in place";
        EXPECT_EQ(StagedDirectory::create(out_).error().code, ErrorCode::kConflict);
        ASSERT_TRUE(staged.commit("our_gate", is_ours).ok());
    }
    EXPECT_EQ(read_file(out_ / "our_gate").value(), "new");
    EXPECT_EQ(read_file(out_ / "our_new").value(), "new");
    EXPECT_EQ(read_file(out_ / "other").value(), "old");
    EXPECT_FALSE(fs::exists(out_ / "our_old"));
    EXPECT_FALSE(fs::exists(out_ / ".saving"));
}

TEST_F(StagedDirectoryTest, WhatIsNotPutInPlaceGoesAndWithItTheDirectoryThatWasMadeForIt) {
    const auto fill = [&] {
        const auto staged = StagedDirectory::create(out_).value();
        write(staged.path() / "our_gate", "new");
    };
    fill();
    EXPECT_FALSE(fs::exists(out_));
    fs::create_directory(out_);
    fill();
    EXPECT_TRUE(fs::is_empty(out_)) << "it was there before";
}

TEST_F(StagedDirectoryTest, ADirectoryThatTookTheNameMeanwhileIsLeftAsItIs) {
    for (const bool commits : {true, false}) {
        {
            auto first = StagedDirectory::create(out_).value();
            write(first.path() / "our_gate", "first");
            fs::rename(out_, directory_.path() / "renamed");
            auto second = StagedDirectory::create(out_).value();
            write(second.path() / "our_gate", "second");
            if (commits) {
                EXPECT_EQ(first.commit("our_gate", is_ours).error().code, ErrorCode::kNotFound);
                EXPECT_FALSE(fs::exists(out_ / "our_gate"));
            }
            {
                const StagedDirectory ends = std::move(first);
            }
            ASSERT_TRUE(second.commit("our_gate", is_ours).ok());
        }
        EXPECT_EQ(read_file(out_ / "our_gate").value(), "second");
        EXPECT_TRUE(fs::is_empty(directory_.path() / "renamed")) << "the first removed its own files";
        fs::remove_all(out_);
        fs::remove(directory_.path() / "renamed");
    }
}

}  // namespace
}  // namespace atl
