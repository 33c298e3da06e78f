// What a user is told of a model whose numbers overflow.

#include <algorithm>
#include <cstring>

#include "shared/run_settings/exit_codes.h"
#include "shared/safetensors/file.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class NotFiniteProgramTest : public ProgramTest {
  protected:
    // The fixture's model in fp32, with all values of these tensors the same.
    void fill(const std::vector<std::string>& names, float value) const {
        ASSERT_EQ(run({"init", "--config", path("config.json"), "--out", path("model"), "--seed", "1", "--dtype",
                       "fp32", "--overwrite"})
                      .exit_code,
                  0);
        const std::string file = path("model") + "/model.safetensors";
        std::string bytes = weights("model");
        const auto opened = safetensors::File::open(file);
        ASSERT_TRUE(opened.ok());
        for (const std::string& name : names) {
            const auto* const tensor = opened->header().find(name);
            ASSERT_NE(tensor, nullptr) << name;
            const auto part = opened->bytes(*tensor);
            const auto begin = static_cast<std::size_t>(opened->header().data_begin + tensor->begin);
            for (std::size_t at = 0; at < part.size(); at += sizeof value)
                std::memcpy(bytes.data() + begin + at, &value, sizeof value);
        }
        ASSERT_TRUE(write_file_atomic(file, bytes).ok());
    }
};

TEST_F(NotFiniteProgramTest, TheErrorNamesTheFirstBlockThatOverflows) {
    fill({"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"}, 1e38F);
    const std::vector<std::vector<std::string>> variants = {{"--grad-accum", "2"}, {"--deterministic"}};
    for (const int ranks : {1, 2}) {
        for (std::vector<std::string> flags : variants) {
            flags.insert(flags.end(), {"--steps", "2", "--global-batch-size", "4", "--sharding", "full_shard"});
            const auto result = train("out", flags, ranks);
            EXPECT_EQ(result.exit_code, run_settings::kExitNotFinite) << result.err;
            EXPECT_NE(result.err.find("not finite at step 1: first in the output of layers.1;"), std::string::npos)
                << result.err;
        }
    }
}

TEST_F(NotFiniteProgramTest, ARunThatOverflowsLaterNamesWhereItBegan) {
    const auto result = train("out", {"--steps", "100", "--global-batch-size", "4", "--lr", "1e6", "--optimizer", "sgd",
                                      "--max-grad-norm", "0"});
    EXPECT_EQ(result.exit_code, run_settings::kExitNotFinite) << result.err;
    const std::size_t said = result.err.find("not finite at step ");
    ASSERT_NE(said, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("not finite at step 1:"), std::string::npos) << "the first step is finite";
    EXPECT_NE(result.err.find(": first in the ", said), std::string::npos) << result.err;
}

}  // namespace
}  // namespace atl::program
