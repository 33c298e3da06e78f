#include "trainer/train/not_finite.h"

#include <gtest/gtest.h>

#include <limits>

#include "trainer/parallel/testing/tiny_run.h"

namespace atl::train {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A tiny model of three layers on one rank, one row.
class NotFiniteTest : public testing::Test {
  protected:
    NotFiniteTest() {
        parallel::RunMemoryOptions options;
        options.engine = {.largest = {1, parallel::kLength}, .reduce = {}};
        options.layout = parallel::parallel_layout(parallel::Sharding::kNone, 0, 1);
        options.optimizer = &optimizer_;
        memory_ = parallel::RunMemory::allocate(*backend_, model_, options).value();
        ranks_ = std::make_unique<parallel::ProcessGroups>(*self_, options.layout, *backend_);
        for (std::size_t unit = 0; unit < model_.units.size(); ++unit)
            parallel::initialize_weights(memory_->store(), unit, *backend_);
    }

    void load() {
        const parallel::Rows rows = parallel::rows_of_step(1, 1);
        EXPECT_TRUE(memory_->batch().load(*backend_, {{1, parallel::kLength}, rows.ids, rows.labels, {}}).ok());
    }
    void train(float gradient_scale) {
        load();
        memory_->engine().train(*backend_, *ranks_, memory_->batch().batch(),
                                {.gradient_scale = gradient_scale, .loss_sum = memory_->scalars().loss()});
        memory_->engine().gradients().finish(*backend_, *ranks_);
    }
    std::string find(const std::function<void()>& make_gradients = [] {}) {
        return find_not_finite(*memory_, *backend_, *ranks_, 1, [&](std::int64_t) { load(); }, make_gradients);
    }

    // A parameter's part of its unit's weights or gradients.
    kernels::Tensor part(const std::string& name, bool gradient) const {
        for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
            for (const model::Parameter& parameter : model_.units[unit].parameters) {
                if (parameter.name != name) continue;
                const auto& flat = gradient ? memory_->store().gradients(unit) : memory_->store().weights(unit);
                return parallel::flat_range(flat, parameter.offset, parameter.element_count());
            }
        }
        ADD_FAILURE() << name;
        return {};
    }
    kernels::Tensor weight(const std::string& name) const { return part(name, false); }
    kernels::Tensor gradient(const std::string& name) const { return part(name, true); }

    model::Model model_ = parallel::tiny_model(false);
    std::unique_ptr<kernels::Backend> backend_ = parallel::make_backend(0);
    std::unique_ptr<comm::Comm> self_ = comm::make_self();
    optim::Optimizer optimizer_;
    std::unique_ptr<parallel::RunMemory> memory_;
    std::unique_ptr<parallel::ProcessGroups> ranks_;
};

TEST_F(NotFiniteTest, AWeightIsNamed) {
    weight("model.layers.2.input_layernorm.weight").f32()[0] = kInfinity;
    weight("model.layers.1.mlp.down_proj.weight").f32()[7] = std::numeric_limits<float>::quiet_NaN();
    train(1);
    EXPECT_EQ(find(), "first in the weight model.layers.1.mlp.down_proj.weight");
}

TEST_F(NotFiniteTest, TheBlockIsNamedWhoseOutputOverflows) {
    for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"})
        std::ranges::fill(std::span(weight(name).f32(), static_cast<std::size_t>(weight(name).element_count())), 1e38F);
    train(1);
    EXPECT_EQ(find(), "first in the output of layers.1");
}

TEST_F(NotFiniteTest, TheLossIsTheOutputOfTheHead) {
    const kernels::Tensor head = weight("lm_head.weight");
    std::ranges::fill(std::span(head.f32(), static_cast<std::size_t>(head.element_count())), 3e38F);
    train(1);
    EXPECT_EQ(find(), "first in the output of head");
}

TEST_F(NotFiniteTest, AGradientThatOverflowsIsNamedFromTheEnd) {
    train(3e38F);  // more than the sum of two such gradients can be
    EXPECT_EQ(find(), "first in the gradient of lm_head.weight");
    train(1);
    gradient("model.embed_tokens.weight").f32()[3] = kInfinity;
    gradient("model.layers.1.self_attn.q_proj.weight").f32()[0] = kInfinity;
    gradient("model.layers.1.mlp.down_proj.weight").f32()[0] = -kInfinity;
    EXPECT_EQ(find(), "first in the gradient of model.layers.1.mlp.down_proj.weight");
}

TEST_F(NotFiniteTest, TheGradientsAreThoseOfTheStepItself) {
    train(1);  // the next step, which has begun
    EXPECT_EQ(find([&] { train(3e38F); }), "first in the gradient of lm_head.weight");
}

TEST_F(NotFiniteTest, OfFiniteValuesNoneIsNamed) {
    train(1);
    EXPECT_EQ(find(), "no weight, activation or gradient is, but a sum of them");
}

}  // namespace
}  // namespace atl::train
