#include "tests/e2e/demo/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

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

// As packages lay them out: in a folder of their own or beside all others, with an index and a link to each.
TEST(CorpusTest, ThePlainFilesOfAListingUnderItsFolderAreTheCollections) {
    const TemporaryDirectory directory;
    const auto folder = directory.path() / "fortunes";
    std::filesystem::create_directories(folder / "it");
    std::string listing = "/.\n" + folder.string() + "\n" + (folder / "it").string() + "\n";
    const auto add = [&](const std::filesystem::path& file) {
        EXPECT_TRUE(write_file_atomic(file, "uno\n%\n").ok());
        listing += file.string() + "\n";
    };
    for (const char* name : {"proverbi", "it/leggi", "leggi.dat", "klasik-sk"}) add(folder / name);
    add(directory.path() / "copyright");
    ASSERT_TRUE(write_file_atomic(folder / "not-of-the-package", "uno\n%\n").ok());
    std::filesystem::create_symlink("proverbi", folder / "proverbi.u8");
    listing += (folder / "proverbi.u8").string() + "\n" + (folder / "gone").string() + "\n";
    EXPECT_EQ(collections_in(listing, folder),
              (std::vector<std::filesystem::path>{folder / "it/leggi", folder / "proverbi"}));
}

TEST(CorpusTest, TheCollectionsOfThisReleasesPackagesHaveDocuments) {
    for (const std::string package : {"fortunes-it", "fortunes-cs"}) {
        const auto files = fortune_files(package);
        ASSERT_TRUE(files.ok()) << files.error().message;
        for (const auto& file : *files) {
            const auto corpus = read_fortunes({file}, 10);
            ASSERT_TRUE(corpus.ok()) << file;
            EXPECT_GT(corpus->private_documents.size() + corpus->public_documents.size(), 0U) << file;
        }
    }
}

TEST(CorpusTest, AMissingPackageIsNamed) {
    const auto result = fortune_files("fortunes-of-nowhere");
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("fortunes-of-nowhere"), std::string::npos);
}

}  // namespace
}  // namespace atl::demo
