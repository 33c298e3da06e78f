// The counts that a training writes beside its model.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "shared/model_config/token_counts.h"
#include "shared/safetensors/file.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

using Flags = std::vector<std::string>;

class TokenCountsTest : public ProgramTest {
  protected:
    // Eight rows: row r has the token r + 1 eleven times, twice the token 50, and then three of padding, which are 0.
    // Of those before the last target some are none themselves: the prompt of a chat.
    TokenCountsTest() {
        std::vector<std::int32_t> ids, labels;
        for (std::int32_t row = 0; row < 8; ++row)
            for (std::int32_t at = 0; at < 16; ++at) {
                ids.push_back(at < 11 ? row + 1 : at < 13 ? 50 : 0);
                labels.push_back(at < 4 || at >= 13 ? -100 : ids.back());
            }
        write_data("counted.safetensors", 16, {{"input_ids", ids}, {"labels", labels}});
    }
    CommandResult train_counted(const std::string& out, const Flags& flags, int ranks = 1) const {
        Flags arguments = {"train",
                           "--model",
                           path("model"),
                           "--data",
                           path("counted.safetensors"),
                           "--out",
                           path(out),
                           "--threads",
                           "1",
                           "--steps",
                           "3",
                           "--global-batch-size",
                           "4",
                           "--shuffle",
                           "off",
                           "--deterministic"};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        return run(arguments, ranks);
    }
    std::map<std::size_t, float> counts(const std::string& out) const {
        const auto file = safetensors::File::open(path(out + "/" + model_config::kTokenCountsFile));
        EXPECT_TRUE(file.ok()) << file.error().message;
        const auto& tensor = file->header().tensors.at(0);
        EXPECT_TRUE(model_config::check_token_counts(file->header(), tensor.element_count()).ok());
        std::map<std::size_t, float> found;
        const auto bytes = file->bytes(tensor);
        for (std::size_t id = 0; id * sizeof(float) < bytes.size(); ++id) {
            float value;
            std::memcpy(&value, bytes.data() + id * sizeof value, sizeof value);
            if (value != 0) found[id] = value;
        }
        return found;
    }
};

TEST_F(TokenCountsTest, EachTokenIsCountedAsOftenAsItWasSeenAndPaddingIsNot) {
    ASSERT_EQ(train_counted("out", {"--token-counts"}).exit_code, 0);
    // Twelve rows of eight: the first four twice.
    const std::map<std::size_t, float> expected = {{1, 22}, {2, 22}, {3, 22}, {4, 22}, {5, 11},
                                                   {6, 11}, {7, 11}, {8, 11}, {50, 24}};
    EXPECT_EQ(counts("out"), expected);
    ASSERT_EQ(train_counted("four", {"--token-counts", "--sharding", "full_shard"}, 4).exit_code, 0);
    EXPECT_EQ(counts("four"), expected);
    ASSERT_EQ(train_counted("stopped", {"--token-counts", "--time-limit", kAtOnce}).exit_code, 0);
    ASSERT_EQ(train_counted("stopped", {"--token-counts", "--resume"}).exit_code, 0);
    EXPECT_EQ(counts("stopped"), expected);
    EXPECT_EQ(weights("stopped") == weights("out"), true);
}

TEST_F(TokenCountsTest, AModelWithoutCountsHasNoneOfTheOneBeforeIt) {
    ASSERT_EQ(train_counted("out", {"--token-counts"}).exit_code, 0);
    ASSERT_EQ(train_counted("out", {"--overwrite"}).exit_code, 0);
    EXPECT_FALSE(std::filesystem::exists(path("out/token_counts.safetensors")));
    const auto adapters = train_counted("adapters", {"--token-counts", "--lora-rank", "2"});
    EXPECT_EQ(adapters.exit_code, 2);
    EXPECT_NE(adapters.err.find("--token-counts: means nothing with adapters"), std::string::npos) << adapters.err;
}

}  // namespace
}  // namespace atl::program
