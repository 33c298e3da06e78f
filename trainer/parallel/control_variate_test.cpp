// With the ranks of engine_test.cpp.
#include "trainer/parallel/control_variate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainer/kernels/testing/worse.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

// Element `index` of a unit's gradient; none is zero.
float gradient_value(std::size_t unit, std::int64_t index) {
    return static_cast<float>((index * 5 + static_cast<std::int64_t>(unit)) % 127 - 63.5F) / 7;
}

// Memory of a run, and gradients that are the same in each step.
class ControlRun {
  public:
    explicit ControlRun(const Variant& variant) : model_(tiny_model(true)), backend_(make_backend(variant.far)) {
        RunMemoryOptions options;
        options.engine.largest = {1, kLength};
        options.layout = parallel_layout(variant.sharding, world->rank(), world->size(), std::min(2, world->size()));
        options.optimizer = &optimizer_;
        options.has_control_variate = true;
        memory_ = RunMemory::allocate(*backend_, model_, options).value();
        control().begin(*backend_, store());
    }
    ParameterStore& store() { return memory_->store(); }
    ControlVariate& control() { return memory_->control_variate(); }

    // In pieces that are no rank's shard.
    void set_correction() {
        constexpr std::int64_t kPiece = 1000;
        for (std::size_t unit = 0; unit < store().unit_count(); ++unit) {
            for (std::int64_t at = 0; at < store().shard_spec(unit).element_count; at += kPiece) {
                std::vector<float> values;
                for (std::int64_t i = at; i < std::min(at + kPiece, store().shard_spec(unit).element_count); ++i)
                    values.push_back(correction_value(unit, i));
                control().set_correction(*backend_, store(), unit, at, values);
            }
        }
    }

    // One step with these gradients; the scalars that the optimizer gets.
    kernels::StepScalars apply(const kernels::StepScalars& scalars) {
        for (std::size_t unit = 0; unit < store().unit_count(); ++unit) {
            const ShardSpec& spec = store().shard_spec(unit);
            std::vector<float> gradients(static_cast<std::size_t>(spec.shard));
            for (std::int64_t i = 0; i < spec.shard && spec.begin + i < spec.element_count; ++i)
                gradients[static_cast<std::size_t>(i)] = gradient_value(unit, spec.begin + i);
            backend_->copy_from_host(gradients.data(), store().gradient_shard(unit));
        }
        memory_->scalars().set(*backend_, scalars);
        kernels::StepScalars now;
        backend_->copy_to_host(control().apply(*backend_, store(), memory_->scalars().all()), &now);
        return now;
    }

    // Of every element of the shards: value(unit, index).
    template <class Value>
    void expect_values(const char* what, bool of_sums, const Value& value) {
        for (std::size_t unit = 0; unit < store().unit_count(); ++unit) {
            const ShardSpec& spec = store().shard_spec(unit);
            const Tensor shard = of_sums ? store().gradient_sum(unit) : store().gradient_shard(unit);
            ASSERT_EQ(shard.element_count(), spec.shard);
            std::vector<float> values(static_cast<std::size_t>(spec.shard));
            backend_->copy_to_host(shard, values.data());
            double worst = 0;
            for (std::int64_t i = 0; i < spec.shard; ++i) {
                const bool is_padding = spec.begin + i >= spec.element_count;
                const double exact = is_padding ? 0 : value(unit, spec.begin + i);
                worst = kernels::worse(worst, std::abs(values[static_cast<std::size_t>(i)] - exact));
            }
            EXPECT_LT(worst, 1e-5) << what << " of unit " << unit;
        }
    }

  private:
    model::Model model_;
    std::unique_ptr<kernels::Backend> backend_;
    optim::Optimizer optimizer_;
    std::unique_ptr<RunMemory> memory_;
};

TEST(ControlVariateTest, ClippedGradientsAreAddedUpAndThenCorrected) {
    constexpr double kFactor = 0.3;
    const kernels::StepScalars step{.factor = kFactor, .is_update = 1, .updates = 5},
        skipped{.factor = 1, .is_update = 0};
    for (const Sharding sharding : kShardings) {
        for (const std::uint64_t far : {0U, 5U}) {
            SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " " << far);
            ControlRun run({.sharding = sharding, .far = far});
            const auto sum_of = [](double factors) {
                return [factors](std::size_t unit, std::int64_t i) { return factors * gradient_value(unit, i); };
            };
            EXPECT_EQ(run.apply(step).factor, kFactor) << "nothing is corrected yet";
            run.expect_values("sum", true, sum_of(kFactor));
            run.expect_values("gradient", false, sum_of(1));
            run.set_correction();
            const kernels::StepScalars now = run.apply(step);
            EXPECT_EQ(now.factor, 1);
            EXPECT_EQ(now.updates, 5);
            EXPECT_EQ(now.is_update, 1);
            run.expect_values("sum", true, sum_of(2 * kFactor));
            run.expect_values("gradient", false, [](std::size_t unit, std::int64_t i) {
                return kFactor * gradient_value(unit, i) + correction_value(unit, i);
            });
            EXPECT_EQ(run.apply(skipped).is_update, 0);
            run.expect_values("sum", true, sum_of(2 * kFactor));
        }
    }
}

TEST(ControlVariateTest, ShardingsAndRanksAndOffloadingAndTheDeviceChangeNoBit) {
    for (const optim::OptimizerKind optimizer : {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kMuon}) {
        Variant variant;
        variant.fixed_tree_sequences = 12;
        variant.optimizer = optimizer;
        const auto self = comm::make_self();
        const Outcome without = run_on(*self, variant);
        variant.has_control_variate = true;
        const Outcome first = run_on(*self, variant);
        EXPECT_EQ(first.losses, without.losses) << "the first round corrects nothing";
        EXPECT_EQ(first.weights, without.weights);
        variant.corrects = true;
        const Outcome reference = run_on(*self, variant);
        EXPECT_NE(reference.losses[1], without.losses[1]);
        EXPECT_EQ(reference.gradient_sums.size(), reference.weights.size());
        for (const Sharding sharding : kShardings) {
            variant.sharding = sharding;
            variant.shard_group = std::min(2, world->size());
            for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
                if (optimizer == optim::OptimizerKind::kMuon && offload != Offload::kNone) continue;
                for (const std::uint64_t far : {0U, 5U}) {
                    SCOPED_TRACE(testing::Message()
                                 << static_cast<int>(sharding) << " " << to_string(offload) << " " << far);
                    variant.offload_params = offload == Offload::kNone ? Offload::kNone : Offload::kCpu;
                    variant.offload_optimizer = offload;
                    variant.far = far;
                    const Outcome outcome = run_world(variant);
                    EXPECT_EQ(outcome.losses, reference.losses);
                    if (world->rank() != 0) continue;
                    EXPECT_EQ(outcome.weights, reference.weights);
                    EXPECT_EQ(outcome.gradient_sums, reference.gradient_sums);
                }
            }
        }
    }
}

}  // namespace
}  // namespace atl::parallel
