#include "services/dispatch/admission/job_adapter.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using model_config::TensorSpec;

std::vector<TensorSpec> adapter_of(std::int64_t inputs, std::int64_t outputs, std::int64_t rank) {
    return {{"m.down_proj.lora_A.weight", {rank, inputs}}, {"m.down_proj.lora_B.weight", {outputs, rank}}};
}

// Llama-2-7B: 32 layers of four linears of 4096 x 4096 and three of 4096 x 11008.
TEST(JobAdapterTest, AdaptersOf7BHaveFortyMillionParameters) {
    BaseModel model;
    model.config = model_config::parse_config(
        R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
            "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096})");
    adapter::LoraOptions options;
    options.rank = 16;
    options.targets = {"all-linear"};
    ASSERT_TRUE(take_adapter({}, options, model).ok());
    EXPECT_EQ(model.adapter_parameters, 32U * 16 * (4 * (4096 + 4096) + 3 * (4096 + 11008)));
    EXPECT_LE(model.adapter_parameters * 2, 80'000'000U) << "as bf16";
    options.targets = {"no_such_proj"};
    EXPECT_FALSE(take_adapter({}, options, model).ok());
}

TEST(JobAdapterTest, AProductTakesWhatHonestJobsHaveAndNoMoreThanItsMemory) {
    JobSpec spec;
    spec.strategy.name = "product";
    spec.participants.resize(8);
    EXPECT_TRUE(check_product_size(spec, adapter_of(28672, 8192, 64)).ok()) << "Llama-3-70B";
    const Status too_many = check_product_size(spec, adapter_of(53248, 16384, 64));
    ASSERT_FALSE(too_many.ok());
    EXPECT_EQ(too_many.error().field, "strategy.name");
    EXPECT_NE(too_many.error().message.find("m.down_proj from 8 updates"), std::string::npos)
        << too_many.error().message;
    EXPECT_NE(too_many.error().message.find("lower training.lora_rank"), std::string::npos) << too_many.error().message;
    spec.participants.resize(2);
    EXPECT_TRUE(check_product_size(spec, adapter_of(53248, 16384, 64)).ok());
    EXPECT_FALSE(check_product_size(spec, adapter_of(1 << 20, 8, 32)).ok());
}

}  // namespace
}  // namespace atl::dispatch
