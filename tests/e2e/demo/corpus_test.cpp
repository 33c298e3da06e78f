#include "tests/e2e/demo/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "shared/base/file.h"

namespace atl::demo {
namespace {

TEST(CorpusTest, EntriesEndAtLinesThatHoldOnlyAPercentSign) {
    EXPECT_EQ(split_fortunes("uno\ndue\n%\n\n%\n100 %\n%\ntre"),
              (std::vector<std::string>{"uno\ndue", "100 %", "tre"}));
}

TEST(CorpusTest, PublicAndPrivateDocumentsAreDisjointAndStable) {
    const TemporaryDirectory directory;
    std::string text;
    for (int i = 0; i < 200; ++i) text += "documento " + std::to_string(i) + "\n%\n";
    ASSERT_TRUE(write_file_atomic(directory.path() / "a", text).ok());
    ASSERT_TRUE(write_file_atomic(directory.path() / "b", text).ok());  // the same again: repeated entries count once
    const std::vector<std::filesystem::path> files = {directory.path() / "a", directory.path() / "b"};
    const auto first = read_fortunes(files, 10);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->private_documents.size() + first->public_documents.size(), 200U);
    EXPECT_GT(first->public_documents.size(), 5U);
    EXPECT_LT(first->public_documents.size(), 45U);
    EXPECT_EQ(read_fortunes(files, 10)->public_documents, first->public_documents);
}

TEST(CorpusTest, OnlyRowsOfAMixedFileBringTheirInstruction) {
    EXPECT_EQ(to_jsonl({"uno", "due"}), "{\"text\":\"uno\"}\n{\"text\":\"due\"}\n");
    EXPECT_EQ(to_instructed_jsonl("scrivi::", {"uno"}), "{\"instruction\":\"scrivi::\",\"text\":\"uno\"}\n");
}

// fortunes-it lies in a directory of its own in one Debian release and beside all others in the next.
TEST(CorpusTest, TheCollectionsOfAPackageAreItsOwnTextsWithoutIndexesAndLinks) {
    for (const std::string package : {"fortunes-it", "fortunes-cs"}) {
        const auto files = fortune_files(package);
        ASSERT_TRUE(files.ok()) << files.error().message;
        EXPECT_GT(files->size(), 10U) << package;
        for (const auto& file : *files) {
            EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(file))) << file;
            EXPECT_EQ(file.extension(), "") << file;
        }
        std::set<std::string> names;
        for (const auto& file : *files) EXPECT_TRUE(names.insert(file.filename()).second) << file << " is there twice";
        EXPECT_EQ(names.count("klasik-sk"), 0U) << "Slovak is not Czech";
    }
}

TEST(CorpusTest, AMissingPackageIsNamed) {
    const auto result = fortune_files("fortunes-of-nowhere");
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("fortunes-of-nowhere"), std::string::npos);
}

}  // namespace
}  // namespace atl::demo
