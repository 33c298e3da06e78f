#include "shared/base/out_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "shared/base/file.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

class OutDirectoryTest : public testing::Test {
  protected:
    void write(const std::string& name) const {
        fs::create_directories((directory_.path() / name).parent_path());
        ASSERT_TRUE(write_file_atomic(directory_.path() / name, "x").ok());
    }
    Status replaceable(const std::string& name) const {
        return check_replaceable(directory_.path() / name, "data.json",
                                 [](std::string_view file) { return file == "data.json" || file == "rows"; });
    }
    Status stays(const std::string& out, const std::string& read) const {
        const std::vector<fs::path> reads = {directory_.path() / "elsewhere", directory_.path() / read};
        return check_reads_stay(directory_.path() / out, reads);
    }
    TemporaryDirectory directory_;
};

TEST_F(OutDirectoryTest, WhatTheCommandMadeAndNothingElseMayBeReplaced) {
    EXPECT_TRUE(replaceable("nothing").ok());
    fs::create_directories(directory_.path() / "empty");
    EXPECT_TRUE(replaceable("empty").ok());
    write("mine/data.json");
    write("mine/rows");
    EXPECT_TRUE(replaceable("mine").ok());
    write("mine/notes.txt");
    const Status foreign = replaceable("mine");
    ASSERT_FALSE(foreign.ok());
    EXPECT_EQ(foreign.error().code, ErrorCode::kConflict);
    EXPECT_NE(foreign.error().message.find("notes.txt"), std::string::npos) << foreign.error().message;
}

TEST_F(OutDirectoryTest, WhatAKilledProcessLeftDoesNotCount) {
    write("mine/.saving.7/model");
    write("mine/.rows.a1B2c3");
    EXPECT_TRUE(replaceable("mine").ok()) << "nothing else";
    write("mine/data.json");
    EXPECT_TRUE(replaceable("mine").ok());
    write("half/.saving/data.json");
    write("half/rows");
    EXPECT_TRUE(replaceable("half").ok()) << "it died while it put its files in place";
    write("mine/.notes.a1B2c3");
    EXPECT_FALSE(replaceable("mine").ok());
}

TEST_F(OutDirectoryTest, AFileASignlessDirectoryAndNestedOnesStay) {
    write("file");
    EXPECT_FALSE(replaceable("file").ok());
    write("signless/rows");
    EXPECT_FALSE(replaceable("signless").ok());
    write("nested/data.json");
    write("nested/rows/deep");
    EXPECT_FALSE(replaceable("nested").ok());
    fs::create_symlink(directory_.path() / "gone", directory_.path() / "dangling");
    EXPECT_FALSE(replaceable("dangling").ok());
}

TEST_F(OutDirectoryTest, WhatCannotBeMadeOrWrittenIntoIsRefusedByName) {
    for (const char* name : {"closed", "own"}) fs::create_directories(directory_.path() / name);
    fs::permissions(directory_.path() / "closed", fs::perms(0555));
    fs::permissions(directory_.path() / "own", fs::perms(0777));
    fs::permissions(directory_.path(), fs::perms(0755));
    write("file");
    const uid_t user = ::geteuid();
    const uid_t other = user == 0 ? 65534 : user;  // root may write anywhere
    ASSERT_EQ(::seteuid(other), 0);
    const Status closed = replaceable("closed"), below = replaceable("closed/new/deep"), open = replaceable("own/new");
    const Status in_file = replaceable("file/new");
    ASSERT_EQ(::seteuid(user), 0);
    EXPECT_TRUE(open.ok());
    for (const Status& status : {closed, below}) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kPermissionDenied);
        EXPECT_EQ(status.error().field, "out");
    }
    EXPECT_NE(below.error().message.find("cannot create"), std::string::npos) << below.error().message;
    ASSERT_FALSE(in_file.ok());
    EXPECT_EQ(in_file.error().code, ErrorCode::kNotFound);
}

TEST_F(OutDirectoryTest, WhatIsReadIsNeitherTheOutNorInIt) {
    write("in/deep/a.jsonl");
    EXPECT_FALSE(stays("in/deep/a.jsonl", "in/deep/a.jsonl").ok());
    EXPECT_FALSE(stays("in", "in/deep/a.jsonl").ok());
    EXPECT_FALSE(stays("in/", "in/../in/deep/a.jsonl").ok());
    fs::create_directory_symlink(directory_.path() / "in", directory_.path() / "link");
    EXPECT_FALSE(stays("link", "in/deep/a.jsonl").ok());
    EXPECT_TRUE(stays("in/deep/out", "in/deep/a.jsonl").ok());
    EXPECT_TRUE(stays("i", "in/deep/a.jsonl").ok());
}

}  // namespace
}  // namespace atl
