// With the ranks of engine_test.cpp.
#include "trainer/parallel/proximal_term.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainer/kernels/testing/worse.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

using tensor::DType;
constexpr auto kExactWeights = ParameterStore::Saved::kExactWeights;

// Element `index` of a unit: numbers that bf16 holds.
float start_value(std::size_t unit, std::int64_t index) {
    return static_cast<float>((index * 7 + static_cast<std::int64_t>(unit)) % 129 - 64) / 64;
}
float moved_value(std::size_t unit, std::int64_t index) {
    return static_cast<float>((index * 5 + static_cast<std::int64_t>(unit)) % 127 - 63) / 64;
}

// The memory of a run whose exact weights are the start's, then others.
class TermRun {
  public:
    explicit TermRun(const Variant& variant) : model_(tiny_model(true)), backend_(make_backend(variant.far)) {
        model_.use_formats(variant.formats);
        RunMemoryOptions options;
        options.engine.largest = {1, kLength};
        options.layout = parallel_layout(variant.sharding, world->rank(), world->size(), std::min(2, world->size()));
        options.optimizer = &optimizer_;
        options.offload_params = variant.offload_params;
        options.offload_optimizer = variant.offload_optimizer;
        options.offload_dir = directory_.path();
        options.has_proximal_term = true;
        memory_ = RunMemory::allocate(*backend_, model_, options).value();
    }
    ParameterStore& store() { return memory_->store(); }

    void set_weights(float (*value)(std::size_t, std::int64_t)) {
        for (std::size_t unit = 0; unit < store().unit_count(); ++unit) {
            const ParameterStore::Range range = store().saved_range(kExactWeights, unit);
            std::vector<float> values(static_cast<std::size_t>(range.count), 0.0F);
            for (std::int64_t i = 0; i < range.count && range.begin + i < store().shard_spec(unit).element_count; ++i)
                values[static_cast<std::size_t>(i)] = value(unit, range.begin + i);
            const weights::DType dtype = weights::file_dtype(store().saved_dtype(kExactWeights, unit));
            std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(safetensors::size_bytes(dtype)));
            EXPECT_TRUE(weights::narrow(dtype, values, bytes));
            EXPECT_TRUE(store().write(*backend_, kExactWeights, unit, 0, bytes).ok());
        }
    }

    // Of a gradient of index / 1000.
    std::vector<float> add(std::size_t unit, double factor) {
        for (std::size_t each = 0; each < store().unit_count(); ++each) {
            const Tensor shard = store().gradient_shard(each);
            std::vector<float> gradients(static_cast<std::size_t>(shard.element_count()));
            for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i) / 1000;
            backend_->copy_from_host(gradients.data(), shard);
        }
        EXPECT_TRUE(memory_->proximal_term().add_to_gradients(*backend_, store(), factor).ok());
        const Tensor shard = store().gradient_shard(unit);
        std::vector<float> gradients(static_cast<std::size_t>(shard.element_count()));
        backend_->copy_to_host(shard, gradients.data());
        return gradients;
    }

    void set_start() { EXPECT_TRUE(memory_->proximal_term().set_start(*backend_, store()).ok()); }

  private:
    model::Model model_;
    std::unique_ptr<kernels::Backend> backend_;
    optim::Optimizer optimizer_;
    TemporaryDirectory directory_;
    std::unique_ptr<RunMemory> memory_;
};

TEST(ProximalTermTest, TheGradientGetsMuTimesTheDistanceFromTheStart) {
    constexpr double kFactor = 0.3;
    for (const Sharding sharding : kShardings) {
        for (const kernels::Formats& formats : {kernels::Formats{}, kernels::Formats{.weights = DType::kBF16},
                                                kernels::Formats{.weights = DType::kBF16, .masters = {}}}) {
            for (const Offload offload : {Offload::kNone, Offload::kNvme}) {
                SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " " << to_string(offload));
                Variant variant{.sharding = sharding, .formats = formats, .offload_optimizer = offload};
                TermRun run(variant);
                run.set_weights(start_value);
                run.set_start();
                run.set_weights(moved_value);
                for (std::size_t unit = 0; unit < run.store().unit_count(); ++unit) {
                    const std::vector<float> gradients = run.add(unit, kFactor);
                    const ShardSpec& spec = run.store().shard_spec(unit);
                    ASSERT_EQ(std::ssize(gradients), spec.shard);
                    double worst = 0;
                    for (std::int64_t i = 0; i < spec.shard && spec.begin + i < spec.element_count; ++i) {
                        const double moved =
                            static_cast<double>(moved_value(unit, spec.begin + i)) - start_value(unit, spec.begin + i);
                        const double exact = static_cast<double>(static_cast<float>(i) / 1000) + kFactor * moved;
                        worst = kernels::worse(
                            worst, std::abs(static_cast<double>(gradients[static_cast<std::size_t>(i)]) - exact) /
                                       (1 + std::abs(exact)));
                    }
                    EXPECT_LT(worst, 1.5e-7) << "unit " << unit;
                }
            }
        }
    }
}

TEST(ProximalTermTest, ShardingsAndRanksAndOffloadingAndTheDeviceChangeNoBit) {
    for (const DType storage : {DType::kF32, DType::kBF16}) {
        Variant variant;
        variant.fixed_tree_sequences = 12;
        variant.formats.weights = storage;
        const auto self = comm::make_self();
        const Outcome without = run_on(*self, variant);
        variant.proximal_mu = 0.5;
        const Outcome reference = run_on(*self, variant);
        EXPECT_EQ(reference.losses[1], without.losses[1]) << "the first step begins at the start";
        EXPECT_NE(reference.losses[2], without.losses[2]);
        for (const Sharding sharding : kShardings) {
            variant.sharding = sharding;
            variant.shard_group = std::min(2, world->size());
            for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
                for (const std::uint64_t far : {0U, 5U}) {
                    SCOPED_TRACE(testing::Message()
                                 << static_cast<int>(sharding) << " " << to_string(offload) << " " << far);
                    variant.offload_params = offload == Offload::kNone ? Offload::kNone : Offload::kCpu;
                    variant.offload_optimizer = offload;
                    variant.far = far;
                    const Outcome outcome = run_world(variant);
                    EXPECT_EQ(outcome.losses, reference.losses);
                    if (world->rank() == 0) {
                        EXPECT_EQ(outcome.weights, reference.weights);
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace atl::parallel
