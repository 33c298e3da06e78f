#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "trainer/tokenizer/tokenizer.h"

// Directories whose files say different things, made by the rules of tests/numerics/make_tokenizer_files_goldens.py,
// against what AutoTokenizer of transformers 5 makes of the same directories.
namespace atl::tokenizer {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kFilesFixtures = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers";

// The directory of a case.
class CaseDirectory {
  public:
    explicit CaseDirectory(const Json& made) {
        namespace fs = std::filesystem;
        for (const std::string base : made["bases"])
            for (const auto& file : fs::directory_iterator(
                     base.starts_with("chat/") ? kFilesFixtures.parent_path() / base : kFilesFixtures / base))
                fs::copy_file(file.path(), path(file.path().filename()), fs::copy_options::skip_existing);
        for (const auto& [name, content] : made["files"].items()) write(name, content);
        if (made["patch"].empty()) return;
        write("tokenizer.json", Json::parse(read_file(path("tokenizer.json")).value()).patch(made["patch"]));
    }
    const std::filesystem::path& root() const { return directory_.path(); }

  private:
    std::filesystem::path path(const std::filesystem::path& name) const { return directory_.path() / name; }
    void write(const std::string& name, const Json& value) const {
        std::filesystem::remove(path(name));
        check(write_file_atomic(path(name), value.dump()).ok(), "cannot write a test's file");
    }
    TemporaryDirectory directory_;
};

std::string describe_case(const Json& made) {
    return made["bases"].dump() + " " + made["files"].dump() + " " + made["patch"].dump().substr(0, 200);
}

class TokenizerFilesTest : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(TokenizerFilesTest, DirectoriesAreReadAsByTransformers) {
    const Json golden = Json::parse(read_file(kFilesFixtures / "files.json").value());
    const Json& cases = golden[GetParam().first];
    EXPECT_EQ(std::ssize(cases), GetParam().second);
    for (const Json& made : cases) {
        const CaseDirectory directory(made);
        const auto tokenizer = Tokenizer::open(directory.root());
        ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message << "\n" << describe_case(made);
        EXPECT_EQ((*tokenizer)->eos() ? Json(*(*tokenizer)->eos()) : Json(), made["eos"]) << describe_case(made);
        for (std::size_t text = 0; text < made["ids"].size(); ++text) {
            const std::string written = golden["texts"][text];
            EXPECT_EQ(Json((*tokenizer)->encode_prompt(written).value()), made["ids"][text]) << written << "\n"
                                                                                             << describe_case(made);
        }
    }
}
INSTANTIATE_TEST_SUITE_P(All, TokenizerFilesTest,
                         testing::Values(std::pair("add_prefix_space", 118), std::pair("lists_of_tokens", 90),
                                         std::pair("flags", 112), std::pair("both_files", 48),
                                         std::pair("beginning", 48)));

}  // namespace
}  // namespace atl::tokenizer
