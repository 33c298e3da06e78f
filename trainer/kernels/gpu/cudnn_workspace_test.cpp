#include "trainer/kernels/gpu/cudnn_workspace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace atl::kernels::gpu {
namespace {

std::string to_text(const std::optional<std::int64_t>& bytes) {
    return bytes ? std::to_string(*bytes) : "none";
}

// What cuDNN itself planned, by `./dev cuda --check`.
TEST(CudnnWorkspaceTest, TheRuleGivesEveryPlanOfTheTable) {
    std::ifstream table(ATOLL_ATTENTION_PLANS);
    std::string library;
    int lines = 0;
    for (std::string line; std::getline(table, line);) {
        if (lines == 0 && library.empty()) library = line.substr(0, line.find(','));
        if (line.starts_with("#")) continue;
        std::istringstream words(line);
        std::string card, format, forward, backward;
        AttentionShape shape{};
        std::int64_t places = 0;
        words >> card >> format >> shape.batch >> shape.length >> shape.heads >> shape.kv_heads >>
            shape.head_channels >> places >> forward >> backward;
        ASSERT_FALSE(words.fail()) << line;
        shape.format = format == "fp16" ? tensor::DType::kF16 : tensor::DType::kBF16;
        const int architecture = card == "h100" ? 90 : card == "l40s" ? 89 : 80;
        EXPECT_EQ(to_text(cudnn_workspace_bytes(architecture, {shape, SdpaPass::kForward, places})), forward) << line;
        EXPECT_EQ(to_text(cudnn_workspace_bytes(architecture, {shape, SdpaPass::kBackward, places})), backward) << line;
        ++lines;
    }
    EXPECT_GE(lines, 66);
    EXPECT_EQ(library, std::string("# ") + kCudnnOfRule);
}

TEST(CudnnWorkspaceTest, ASingleTokenHasNoBackwardPass) {
    const SdpaKind kind{{.batch = 1, .length = 1, .heads = 4, .kv_heads = 2, .head_channels = 128},
                        SdpaPass::kBackward};
    for (const int architecture : {80, 90}) EXPECT_FALSE(cudnn_workspace_bytes(architecture, kind).has_value());
}

TEST(CudnnWorkspaceTest, CardsBetweenAreAsTheOlderOne) {
    const SdpaKind kind{{.batch = 1, .length = 4096, .heads = 32, .kv_heads = 8, .head_channels = 128},
                        SdpaPass::kBackward};
    EXPECT_EQ(cudnn_workspace_bytes(89, kind), cudnn_workspace_bytes(80, kind));
    EXPECT_EQ(cudnn_workspace_bytes(100, kind), cudnn_workspace_bytes(90, kind));
    EXPECT_GT(cudnn_workspace_bytes(89, kind), cudnn_workspace_bytes(90, kind));
}

}  // namespace
}  // namespace atl::kernels::gpu
