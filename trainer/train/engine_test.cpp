// Runs with one rank under ctest's own program, and with 2 and 4 under mpirun: every way of sharding gives the losses
// and weights of one process that sees all rows.
#include "trainer/train/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "trainer/comm/launch.h"
#include "trainer/model/initialize.h"
#include "trainer/train/gather_pieces.h"
#include "trainer/train/layout.h"

namespace atl::train {
namespace {

comm::Comm* world = nullptr;

constexpr std::int64_t kGlobalRows = 8;
constexpr std::int64_t kLength = 12;
constexpr std::int64_t kVocabulary = 50;
constexpr int kSteps = 3;

model::Model tiny_model(bool tied) {
    const std::string text = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 50,
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": )" +
                             std::string(tied ? "true}" : "false}");
    const auto config = model::parse_config(text);
    check(config.ok(), config.ok() ? "" : config.error().message);
    auto model = model::make_model(*config);
    check(model.ok(), model.ok() ? "" : model.error().message);
    return std::move(model).value();
}

struct Rows {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;
};

// Row i has i targets that do not count, so that ranks have unequal numbers of targets.
Rows rows_of_step(int step) {
    std::mt19937 random(static_cast<unsigned>(step));
    Rows rows;
    for (std::int64_t row = 0; row < kGlobalRows; ++row) {
        for (std::int64_t t = 0; t < kLength; ++t) {
            rows.ids.push_back(static_cast<std::int32_t>(random() % kVocabulary));
            rows.labels.push_back(t <= row ? kernels::kIgnoredLabel : rows.ids.back());
        }
    }
    return rows;
}

struct Variant {
    Sharding sharding = Sharding::kNone;
    Recompute recompute = Recompute::kNone;
    std::int64_t accumulation = 1;
    bool tied = false;
    int shard_group = 0;                          // of the hybrid modes
    tensor::DType storage = tensor::DType::kF32;  // of the weights
};

struct Outcome {
    std::vector<double> losses;
    std::vector<float> weights;  // on rank 0
    double eval_loss = 0;
};

// A few steps of AdamW by the parts of a run, without files.
class Run {
  public:
    Run(comm::Comm& comm, const Variant& variant)
        : comm_(comm), variant_(variant), model_(tiny_model(variant.tied)), backend_(make_backend()) {
        for (model::ParameterGroup& group : model_.groups) group.storage = variant.storage;
        LayoutOptions options;
        micro_ = kGlobalRows / comm.size() / variant.accumulation;
        options.engine = {{micro_, kLength}, true, variant.accumulation, variant.recompute};
        options.division = divide(variant.sharding, comm.rank(), comm.size(), variant.shard_group);
        options.optimizer = &optimizer_;
        auto memory = RunMemory::allocate(*backend_, model_, options);
        check(memory.ok(), "no memory");
        memory_ = std::move(memory).value();
        ranks_ = std::make_unique<RankGroups>(comm, options.division);
        initialize();
    }

    Outcome run() {
        Outcome outcome;
        for (int step = 1; step <= kSteps; ++step) outcome.losses.push_back(this->step(step));
        std::array<double, 1> sum{};
        for (std::int64_t micro = 0; micro < variant_.accumulation; ++micro) {
            load(rows_of_step(0), (comm_.rank() * variant_.accumulation + micro) * micro_);
            sum[0] += memory_->engine().evaluate(*backend_, *ranks_, &memory_->batch().batch());
        }
        comm_.all_reduce(sum, comm::Reduction::kSum);
        outcome.eval_loss = sum[0];
        PieceGatherer pieces(*backend_, comm_);
        for (std::size_t group = 0; group < memory_->store().group_count(); ++group) {
            pieces.gather(memory_->store().weights(group), memory_->store().cut(group),
                          [&](std::span<const float> values) {
                              outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
                          });
        }
        return outcome;
    }

  private:
    static std::unique_ptr<kernels::Backend> make_backend() {
        auto backend = kernels::make_cpu_backend(1);
        check(backend.ok(), "no backend");
        return std::move(backend).value();
    }

    void initialize() {
        ParameterStore& store = memory_->store();
        store.clear_moments(*backend_);
        for (std::size_t group = 0; group < store.group_count(); ++group) {
            const GroupCut& cut = store.cut(group);
            const bool sharded = shards_weights(store.sharding());
            for (const Piece& piece :
                 pieces_of(model_.groups[group], sharded ? cut.begin : 0, sharded ? cut.shard : cut.whole)) {
                std::vector<float> values(static_cast<std::size_t>(piece.count));
                model::initialize(model_.groups[group].parameters[piece.parameter], 5, piece.begin, values);
                backend_->copy_from_host(values.data(), flat_range(store.weights(group), piece.at, piece.count));
            }
        }
    }

    std::int64_t load(const Rows& rows, std::int64_t first) {
        const auto part = [&](const std::vector<std::int32_t>& values) {
            return std::span(values).subspan(static_cast<std::size_t>(first * kLength),
                                             static_cast<std::size_t>(micro_ * kLength));
        };
        const auto counts =
            memory_->batch().load(*backend_, {{micro_, kLength}, part(rows.ids), part(rows.labels), {}});
        check(counts.ok(), "the batch does not load");
        std::int64_t sum = 0;
        for (const std::int64_t count : *counts) sum += count;
        return sum;
    }

    double step(int number) {
        const Rows rows = rows_of_step(number);
        std::array<double, 2> sums{};
        double squares = 0;
        for (std::int64_t micro = 0; micro < variant_.accumulation; ++micro) {
            sums[1] += static_cast<double>(load(rows, (comm_.rank() * variant_.accumulation + micro) * micro_));
            sums[0] += memory_->engine().train(*backend_, *ranks_, memory_->batch().batch(), 0.125F,
                                               micro + 1 == variant_.accumulation);
        }
        GradientReduce& gradients = memory_->engine().gradients();
        gradients.finish(*backend_, *ranks_);
        for (std::size_t group = 0; group < memory_->store().group_count(); ++group) {
            squares += backend_->sum_of_squares(memory_->store().own_gradients(group));
        }
        comm_.all_reduce(sums, comm::Reduction::kSum);
        ranks_->by_shard().all_reduce(std::span(&squares, 1), comm::Reduction::kSum);
        gradients.share(*ranks_);
        const double scale = 8 / sums[1];
        const double norm = std::sqrt(squares) * scale;
        memory_->store().update(*backend_, ranks_->copy(), optimizer_,
                                {number, 1e-2, scale * optim::clip_factor(norm, 0.5), false});
        memory_->engine().weights_changed();
        return sums[0] / sums[1];
    }

    comm::Comm& comm_;
    Variant variant_;
    model::Model model_;
    std::unique_ptr<kernels::Backend> backend_;
    optim::Optimizer optimizer_{optim::Kind::kAdamW, 0.9, 0.99, 1e-8, 0.1, 0};
    std::int64_t micro_ = 0;
    std::unique_ptr<RunMemory> memory_;
    std::unique_ptr<RankGroups> ranks_;
};

Outcome run_world(const Variant& variant) {
    return Run(*world, variant).run();
}

Outcome run_alone(bool tied) {
    const auto self = comm::make_self();
    Variant variant;
    variant.tied = tied;
    return Run(*self, variant).run();
}

void expect_near(const Outcome& outcome, const Outcome& reference, double tolerance) {
    for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(outcome.losses[step], reference.losses[step], tolerance) << "step " << step;
    }
    EXPECT_NEAR(outcome.eval_loss / reference.eval_loss, 1, tolerance);
    if (world->rank() != 0) return;
    ASSERT_EQ(outcome.weights.size(), reference.weights.size());
    double worst = 0;
    for (std::size_t i = 0; i < outcome.weights.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(outcome.weights[i]) - reference.weights[i]));
    }
    EXPECT_LT(worst, tolerance);
}

class EngineTest : public testing::TestWithParam<bool> {};

TEST_P(EngineTest, EveryShardingGivesTheStepsOfOneProcess) {
    const bool tied = GetParam();
    const Outcome reference = run_alone(tied);
    for (const Sharding sharding :
         {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
        SCOPED_TRACE(static_cast<int>(sharding));
        Variant variant{sharding, Recompute::kNone, 1, tied};
        expect_near(run_world(variant), reference, 2e-5);
        variant.accumulation = 2;
        expect_near(run_world(variant), reference, 2e-5);
    }
}

TEST_P(EngineTest, EveryShardingGivesTheSameBits) {
    const Outcome reference = run_world({Sharding::kNone, Recompute::kNone, 1, GetParam()});
    for (const Sharding sharding : {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
        const Outcome outcome = run_world({sharding, Recompute::kNone, 1, GetParam()});
        EXPECT_EQ(outcome.losses, reference.losses);
        EXPECT_EQ(outcome.weights, reference.weights);
        EXPECT_EQ(outcome.eval_loss, reference.eval_loss);
    }
}

// With 4 ranks these are 1, 2 and 4 copies; with 2 ranks 1 and 2.
TEST_P(EngineTest, HybridShardingGivesTheSameBits) {
    const Outcome reference = run_world({Sharding::kFullShard, Recompute::kNone, 1, GetParam()});
    const Outcome alone = run_alone(GetParam());
    for (const Sharding sharding : {Sharding::kHybridShard, Sharding::kHybridShardZero2}) {
        for (int group = 1; group <= world->size(); group *= 2) {
            SCOPED_TRACE(group);
            const Outcome outcome = run_world({sharding, Recompute::kNone, 1, GetParam(), group});
            EXPECT_EQ(outcome.losses, reference.losses);
            EXPECT_EQ(outcome.weights, reference.weights);
            EXPECT_EQ(outcome.eval_loss, reference.eval_loss);
            expect_near(run_world({sharding, Recompute::kFull, 2, GetParam(), group}), alone, 2e-5);
        }
    }
}

TEST_P(EngineTest, RecomputationChangesNoBit) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard}) {
        const Outcome kept = run_world({sharding, Recompute::kNone, 2, GetParam()});
        const Outcome again = run_world({sharding, Recompute::kFull, 2, GetParam()});
        EXPECT_EQ(kept.losses, again.losses);
        EXPECT_EQ(kept.weights, again.weights);
    }
}

INSTANTIATE_TEST_SUITE_P(TiedAndNot, EngineTest, testing::Bool());

TEST(RunMemoryTest, FullShardKeepsLessThanNone) {
    const auto bytes = [&](Sharding sharding) {
        const model::Model model = tiny_model(false);
        const optim::Optimizer optimizer;
        LayoutOptions options;
        options.engine = {{1, kLength}, true, 1, Recompute::kNone};
        options.division = divide(sharding, 0, 4, 2);
        options.optimizer = &optimizer;
        const auto backend = kernels::make_cpu_backend(1);
        return RunMemory::measure(**backend, model, options);
    };
    const auto weights = [](const plan::MemoryPlan& plan) {
        return plan.categories[static_cast<std::size_t>(tensor::Category::kWeights)];
    };
    const auto moments = [](const plan::MemoryPlan& plan) {
        return plan.categories[static_cast<std::size_t>(tensor::Category::kMoments)];
    };
    EXPECT_EQ(weights(bytes(Sharding::kNone)), 4 * weights(bytes(Sharding::kFullShard)));
    EXPECT_EQ(moments(bytes(Sharding::kNone)), 4 * moments(bytes(Sharding::kShardOptimizer)));
    EXPECT_EQ(moments(bytes(Sharding::kNone)), 2 * weights(bytes(Sharding::kNone)));
    EXPECT_EQ(weights(bytes(Sharding::kNone)), 2 * weights(bytes(Sharding::kHybridShard)));
    EXPECT_EQ(weights(bytes(Sharding::kNone)), weights(bytes(Sharding::kHybridShardZero2)));
    EXPECT_EQ(moments(bytes(Sharding::kNone)), 2 * moments(bytes(Sharding::kHybridShardZero2)));
}

}  // namespace
}  // namespace atl::train

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    auto owner = atl::comm::open_world();
    if (!owner.ok()) return 1;
    atl::train::world = owner->get();
    double failed = RUN_ALL_TESTS();
    (*owner)->all_reduce(std::span(&failed, 1), atl::comm::Reduction::kMax);
    return failed == 0 ? 0 : 1;
}
