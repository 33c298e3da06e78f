#include "services/dispatch/admission/job_adapter.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using model_config::TensorSpec;

std::vector<TensorSpec> adapter_of(std::int64_t inputs, std::int64_t outputs, std::int64_t rank) {
    return {{"m.down_proj.lora_A.weight", {rank, inputs}}, {"m.down_proj.lora_B.weight", {outputs, rank}}};
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
