#include "tests/e2e/demo/corpus.h"

#include <gtest/gtest.h>

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
    ASSERT_TRUE(write_file_atomic(directory.path() / "a.dat", "index").ok());
    const auto first = read_fortunes(directory.path(), 10);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->private_documents.size() + first->public_documents.size(), 200U);
    EXPECT_GT(first->public_documents.size(), 5U);
    EXPECT_LT(first->public_documents.size(), 45U);
    EXPECT_EQ(read_fortunes(directory.path(), 10)->public_documents, first->public_documents);
}

TEST(CorpusTest, AMissingPackageIsNamed) {
    const TemporaryDirectory directory;
    const auto result = read_fortunes(directory.path(), 10);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("fortunes-it"), std::string::npos);
}

}  // namespace
}  // namespace atl::demo
