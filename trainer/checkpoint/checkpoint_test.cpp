#include "trainer/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "trainer/parallel/run_memory.h"

namespace atl::checkpoint {
namespace {

model::Model tiny_model() {
    model::ModelConfig config;
    config.vocab_size = 8;
    config.hidden_size = 4;
    config.intermediate_size = 4;
    config.num_hidden_layers = config.num_attention_heads = config.num_key_value_heads = 1;
    config.head_dim = 4;
    config.max_position_embeddings = 8;
    return model::make_model(config);
}

TEST(StateTest, EveryNumberOfWhereARunStandsIsLoadedAgain) {
    const TrainerState state{.steps = 90,
                             .tokens = 1234,
                             .loss_sum = 1.0 / 3,
                             .final_loss = 2.75,
                             .wall_s = 5.5,
                             .loss_scale = 4096,
                             .good_steps = 17,
                             .skipped_steps = 6,
                             .best_step = 80,
                             .best_loss = 2.5};
    const TemporaryDirectory directory;
    const auto file = directory.path() / "state.safetensors";
    const auto backend = kernels::make_cpu_backend(1).value();
    const auto self = comm::make_self();
    const model::Model model = tiny_model();
    const optim::Optimizer optimizer;
    parallel::RunMemoryOptions options;
    options.engine.largest = {1, 4};
    options.optimizer = &optimizer;
    const auto memory = parallel::RunMemory::allocate(*backend, model, options).value();
    memory->store().clear_moments(*backend);
    ASSERT_TRUE(save_checkpoint(file, memory->store(), *backend, *self, state, "{}").ok());
    const auto loaded = load_checkpoint(file, memory->store(), *backend, *self, "{}", true);
    ASSERT_TRUE(loaded.ok() && loaded->has_value());
    EXPECT_TRUE(**loaded == state);
}

}  // namespace
}  // namespace atl::checkpoint
