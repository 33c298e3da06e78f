// Runs with one rank under ctest's own program, and with 2 and 4 under mpirun: every way of sharding gives the losses
// and weights of one process that sees all rows.
#include "trainer/parallel/engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "shared/base/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/comm/launch.h"
#include "trainer/kernels/testing/worse.h"
#include "trainer/model/initialize.h"
#include "trainer/parallel/exact_sum_of_squares.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/parallel/gathered_weight_source.h"
#include "trainer/parallel/run_memory.h"
#include "trainer/parallel/testing/far_backend.h"
#include "trainer/weights/storage.h"

namespace atl::parallel {
namespace {

comm::Comm* world = nullptr;

constexpr std::int64_t kGlobalRows = 8;
constexpr std::int64_t kLength = 12;
constexpr std::int64_t kVocabulary = 600;  // so that MPI does not send a table's gradient at once
constexpr int kSteps = 3;

model::Model tiny_model(bool tied) {
    const std::string text = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 600,
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": )" +
                             std::string(tied ? "true}" : "false}");
    const auto config = model::parse_config(text);
    check(config.ok(), config.ok() ? "" : config.error().message);
    return model::make_model(*config);
}

struct Rows {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;
};

// Row i has i targets that do not count, so that ranks have unequal numbers of targets.
Rows rows_of_step(int step, std::int64_t count) {
    std::mt19937 random(static_cast<unsigned>(step));
    Rows rows;
    for (std::int64_t row = 0; row < count; ++row) {
        for (std::int64_t t = 0; t < kLength; ++t) {
            rows.ids.push_back(static_cast<std::int32_t>(random() % kVocabulary));
            rows.labels.push_back(t <= row ? kernels::kIgnoredLabel : rows.ids.back());
        }
    }
    return rows;
}

struct Variant {
    Sharding sharding = Sharding::kNone;
    ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
    std::int64_t accumulation = 1;
    bool tied = false;
    int shard_group = 0;  // of the hybrid modes
    kernels::Formats formats = {};
    std::int64_t fixed_tree_sequences = 0;  // of a step; 0: kGlobalRows, added by ranks
    optim::OptimizerKind optimizer = optim::OptimizerKind::kAdamW;
    bool offloaded = false;
    std::uint64_t far = 0;  // the device is a FarBackend with this seed; 0: the CPU
};

struct Outcome {
    std::vector<double> losses;
    std::vector<float> weights;  // on rank 0
    double eval_loss = 0;
};

std::unique_ptr<kernels::Backend> make_backend(std::uint64_t far) {
    auto backend = kernels::make_cpu_backend(1);
    check(backend.ok(), "no backend");
    if (far != 0) return std::make_unique<FarBackend>(std::move(backend).value(), far);
    return std::move(backend).value();
}

// put(at, values) of elements [begin, begin + count) of a unit.
template <class Put>
void initialize_range(const model::FsdpUnit& unit, std::int64_t begin, std::int64_t count, const Put& put) {
    for (const Piece& piece : split_by_parameter(unit, begin, count)) {
        std::vector<float> values(static_cast<std::size_t>(piece.count));
        model::initialize(unit.parameters[piece.parameter], 5, piece.begin, values);
        put(piece.at, std::span<const float>(values));
    }
}

void initialize_weights(const ParameterStore& store, std::size_t unit, kernels::Backend& backend) {
    const Tensor& weights = store.weights(unit);
    initialize_range(store.model().units[unit], store.kept_begin(weights, unit), weights.element_count(),
                     [&](std::int64_t at, std::span<const float> values) {
                         const auto count = static_cast<std::int64_t>(values.size());
                         check(weights::store_values(values, flat_range(weights, at, count), backend), "does not fit");
                     });
}

// A few steps of AdamW by the parts of a run, without files.
class Run {
  public:
    Run(comm::Comm& comm, const Variant& variant)
        : comm_(comm), variant_(variant), model_(tiny_model(variant.tied)), backend_(make_backend(variant.far)) {
        model_.use_formats(variant.formats);
        optimizer_.kind = variant.optimizer;
        RunMemoryOptions options;
        micro_ = fixed_tree() ? 1 : kGlobalRows / comm.size() / variant.accumulation;
        accumulation_ = fixed_tree() ? variant.fixed_tree_sequences / comm.size() : variant.accumulation;
        options.engine = {
            {micro_, kLength}, true, {accumulation_, variant.fixed_tree_sequences}, variant.activation_checkpointing};
        options.layout = parallel_layout(variant.sharding, comm.rank(), comm.size(), variant.shard_group);
        options.optimizer = &optimizer_;
        options.offload_optimizer = variant.offloaded;
        options.offload_dir = directory_.path();
        auto memory = RunMemory::allocate(*backend_, model_, options);
        check(memory.ok(), "no memory");
        memory_ = std::move(memory).value();
        ranks_ = std::make_unique<ProcessGroups>(comm, options.layout, *backend_);
        initialize();
    }

    Outcome run() {
        Outcome outcome;
        for (int step = 1; step <= kSteps; ++step) outcome.losses.push_back(this->step(step));
        std::array<double, 1> sum{};
        for (std::int64_t micro = 0; micro < accumulation_; ++micro) {
            load(rows_of_step(0, rows()), first_row(micro));
            sum[0] += memory_->engine().evaluate(*backend_, *ranks_, &memory_->batch().batch());
        }
        comm_.all_reduce(sum, comm::Reduction::kSum);
        outcome.eval_loss = sum[0];
        GatherToRank0 pieces(*backend_, comm_);
        for (std::size_t unit = 0; unit < memory_->store().unit_count(); ++unit) {
            const Status read = pieces.gather_weights(memory_->store(), unit, [&](std::span<const float> values) {
                outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
            });
            EXPECT_TRUE(read.ok());
        }
        return outcome;
    }

    Status save(const std::filesystem::path& file) {
        return checkpoint::save_checkpoint(file, memory_->store(), *backend_, comm_, {}, "{}");
    }

  private:
    void initialize() {
        ParameterStore& store = memory_->store();
        store.clear_moments(*backend_);
        for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
            initialize_weights(store, unit, *backend_);
            if (!store.has_masters(unit)) continue;
            constexpr auto kMasters = ParameterStore::Saved::kExactWeights;
            const ParameterStore::Range range = store.saved_range(kMasters, unit);
            initialize_range(
                model_.units[unit], range.begin, range.count, [&](std::int64_t at, std::span<const float> values) {
                    const Status written = store.write(*backend_, kMasters, unit, at, std::as_bytes(values));
                    check(written.ok(), "the masters are not written");
                });
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

    bool fixed_tree() const { return variant_.fixed_tree_sequences > 0; }
    std::int64_t rows() const { return fixed_tree() ? variant_.fixed_tree_sequences : kGlobalRows; }
    std::int64_t first_row(std::int64_t micro) const {
        if (fixed_tree()) return micro * comm_.size() + comm_.rank();
        return (comm_.rank() * accumulation_ + micro) * micro_;
    }

    double gradient_squares() {
        ExactSumOfSquares exact;
        double squares = 0;
        for (std::size_t unit = 0; unit < memory_->store().unit_count(); ++unit) {
            const Tensor own = memory_->store().own_gradients(unit);
            exact.add(*backend_, own);
            squares += backend_->sum_of_squares(own);
        }
        exact.combine(comm_);
        ranks_->world_by_shard().comm().all_reduce(std::span(&squares, 1), comm::Reduction::kSum);
        return fixed_tree() ? exact.value() : squares;
    }

    double step(int number) {
        const Rows rows = rows_of_step(number, this->rows());
        double targets = 0;
        std::vector<double> losses;
        for (std::int64_t micro = 0; micro < accumulation_; ++micro) {
            targets += static_cast<double>(load(rows, first_row(micro)));
            losses.push_back(memory_->engine().train(*backend_, *ranks_, memory_->batch().batch(), 0.125F,
                                                     micro + 1 == accumulation_));
        }
        GradientReduce& gradients = memory_->engine().gradients();
        gradients.finish(*backend_, *ranks_);
        comm_.all_reduce(std::span(&targets, 1), comm::Reduction::kSum);
        gradients.share(*ranks_);
        const double squares = gradient_squares();
        const double scale = 8 / targets;
        const double norm = std::sqrt(squares) * scale;
        const Status updated = memory_->store().update(*backend_, ranks_->shard_group(), optimizer_,
                                                       {number, 1e-2, scale * optim::clip_factor(norm, 0.5), false, 3});
        EXPECT_TRUE(updated.ok());
        memory_->engine().weights_changed();
        return sum_by_sequence(comm_, losses) / targets;
    }

    comm::Comm& comm_;
    Variant variant_;
    model::Model model_;
    std::unique_ptr<kernels::Backend> backend_;
    optim::Optimizer optimizer_{optim::OptimizerKind::kAdamW, 0.9, 0.99, 1e-8, 0.1, 0.9};
    TemporaryDirectory directory_;
    std::int64_t micro_ = 0;
    std::int64_t accumulation_ = 1;
    std::unique_ptr<RunMemory> memory_;
    std::unique_ptr<ProcessGroups> ranks_;
};

Outcome run_on(comm::Comm& comm, const Variant& variant) {
    return Run(comm, variant).run();
}

Outcome run_world(const Variant& variant) {
    return run_on(*world, variant);
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
        worst = kernels::worse(worst, std::abs(static_cast<double>(outcome.weights[i]) - reference.weights[i]));
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
        Variant variant{sharding, ActivationCheckpointing::kNone, 1, tied};
        expect_near(run_world(variant), reference, 2e-5);
        variant.accumulation = 2;
        expect_near(run_world(variant), reference, 2e-5);
    }
}

TEST_P(EngineTest, EveryShardingGivesTheSameBits) {
    const Outcome reference = run_world({Sharding::kNone, ActivationCheckpointing::kNone, 1, GetParam()});
    for (const Sharding sharding : {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
        const Outcome outcome = run_world({sharding, ActivationCheckpointing::kNone, 1, GetParam()});
        EXPECT_EQ(outcome.losses, reference.losses);
        EXPECT_EQ(outcome.weights, reference.weights);
        EXPECT_EQ(outcome.eval_loss, reference.eval_loss);
    }
}

// With 4 ranks these are 1, 2 and 4 copies; with 2 ranks 1 and 2.
TEST_P(EngineTest, HybridShardingGivesTheSameBits) {
    const Outcome reference = run_world({Sharding::kFullShard, ActivationCheckpointing::kNone, 1, GetParam()});
    const Outcome alone = run_alone(GetParam());
    for (const Sharding sharding : {Sharding::kHybridShard, Sharding::kHybridShardZero2}) {
        for (int unit = 1; unit <= world->size(); unit *= 2) {
            SCOPED_TRACE(unit);
            const Outcome outcome = run_world({sharding, ActivationCheckpointing::kNone, 1, GetParam(), unit});
            EXPECT_EQ(outcome.losses, reference.losses);
            EXPECT_EQ(outcome.weights, reference.weights);
            EXPECT_EQ(outcome.eval_loss, reference.eval_loss);
            expect_near(run_world({sharding, ActivationCheckpointing::kFull, 2, GetParam(), unit}), alone, 2e-5);
        }
    }
}

TEST_P(EngineTest, RecomputationChangesNoBit) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard}) {
        const Outcome kept = run_world({sharding, ActivationCheckpointing::kNone, 2, GetParam()});
        for (const ActivationCheckpointing checkpointing :
             {ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
            const Outcome again = run_world({sharding, checkpointing, 2, GetParam()});
            EXPECT_EQ(kept.losses, again.losses);
            EXPECT_EQ(kept.weights, again.weights);
        }
    }
}

// 12 rows over 1, 2, 3 or 4 ranks: every loss and weight is that of one rank without sharding, bit for bit.
TEST_P(EngineTest, WithAFixedTreeOverRowsRanksAndShardingsChangeNoBit) {
    Variant variant;
    variant.tied = GetParam();
    variant.fixed_tree_sequences = 12;
    const auto self = comm::make_self();
    const Outcome reference = run_on(*self, variant);
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kShardGradOp,
                                    Sharding::kFullShard, Sharding::kHybridShard, Sharding::kHybridShardZero2}) {
        for (const ActivationCheckpointing checkpointing :
             {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
            SCOPED_TRACE(static_cast<int>(sharding));
            variant.sharding = sharding;
            variant.activation_checkpointing = checkpointing;
            variant.shard_group = world->size() == 4 ? 2 : world->size();
            const Outcome outcome = run_world(variant);
            EXPECT_EQ(outcome.losses, reference.losses);
            if (world->rank() == 0) {
                EXPECT_EQ(outcome.weights, reference.weights);
            }
        }
    }
}

TEST_P(EngineTest, EveryFormatGivesTheSameBitsInEverySharding) {
    using kernels::Formats;
    using tensor::DType;
    const Outcome wide = run_world({Sharding::kNone, ActivationCheckpointing::kNone, 1, GetParam()});
    constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16;
    for (const Formats& formats :
         {Formats{.weights = kBF16}, Formats{.weights = kF16, .moments = kBF16},
          Formats{.weights = kBF16, .activations = kBF16, .residual = kBF16}, Formats{.activations = kBF16},
          Formats{.weights = kBF16, .activations = kBF16, .residual = kBF16, .has_masters = false, .moments = kBF16},
          Formats{.weights = kF16, .activations = kF16, .residual = kF16}}) {
        Variant variant;
        variant.tied = GetParam();
        variant.formats = formats;
        const Outcome reference = run_world(variant);
        for (int step = 0; step < kSteps; ++step) EXPECT_NEAR(reference.losses[step], wide.losses[step], 2e-2);
        EXPECT_NE(reference.losses, wide.losses);
        for (const Sharding sharding : {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
            variant.sharding = sharding;
            variant.activation_checkpointing = ActivationCheckpointing::kFull;
            const Outcome outcome = run_world(variant);
            EXPECT_EQ(outcome.losses, reference.losses);
            EXPECT_EQ(outcome.weights, reference.weights);
            EXPECT_EQ(outcome.eval_loss, reference.eval_loss);
        }
    }
}

// Each rank's gradients are rounded once, whatever is sharded; one rank rounds nothing.
TEST_P(EngineTest, GradientsThatTravelInBf16GiveTheSameBitsInEverySharding) {
    Variant variant;
    variant.tied = GetParam();
    const Outcome wide = run_world(variant);
    variant.formats.reduced = tensor::DType::kBF16;
    const Outcome reference = run_world(variant);
    for (int step = 0; step < kSteps; ++step) EXPECT_NEAR(reference.losses[step], wide.losses[step], 1e-2);
    EXPECT_EQ(reference.losses == wide.losses, world->size() == 1);
    for (const Sharding sharding : {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
        variant.sharding = sharding;
        for (const std::uint64_t far : {0U, 3U}) {
            variant.far = far;
            const Outcome outcome = run_world(variant);
            EXPECT_EQ(outcome.losses, reference.losses);
            EXPECT_EQ(outcome.weights, reference.weights);
        }
    }
    variant.sharding = Sharding::kHybridShard;
    variant.shard_group = std::min(2, world->size());
    const Outcome hybrid = run_world(variant);
    for (int step = 0; step < kSteps; ++step) EXPECT_NEAR(hybrid.losses[step], wide.losses[step], 1e-2);
}

TEST_P(EngineTest, AnOffloadedOptimizerGivesTheSameBitsInEveryShardingAndStorage) {
    using tensor::DType;
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kShardGradOp,
                                    Sharding::kFullShard, Sharding::kHybridShard, Sharding::kHybridShardZero2}) {
        for (const DType storage : {DType::kF32, DType::kBF16, DType::kF16}) {
            for (const optim::OptimizerKind optimizer : {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kSgd}) {
                SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << tensor::size_bytes(storage));
                Variant variant{sharding,   ActivationCheckpointing::kNone, 1,
                                GetParam(), std::min(2, world->size()),     {.weights = storage}};
                variant.formats.moments = storage == DType::kF16 ? DType::kBF16 : DType::kF32;
                variant.optimizer = optimizer;
                const Outcome kept = run_world(variant);
                variant.offloaded = true;
                const Outcome offloaded = run_world(variant);
                EXPECT_EQ(offloaded.losses, kept.losses);
                EXPECT_EQ(offloaded.weights, kept.weights);
            }
        }
    }
}

// Memory that the host cannot touch, streams in any order that their events allow.
TEST(FarDeviceTest, TrainsTheSameBits) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kShardGradOp,
                                    Sharding::kFullShard, Sharding::kHybridShard, Sharding::kHybridShardZero2}) {
        Variant by_rows{sharding, ActivationCheckpointing::kSelective, 2, true, std::min(2, world->size())};
        Variant offloaded = by_rows;
        by_rows.fixed_tree_sequences = 12;
        offloaded.formats.weights = tensor::DType::kBF16;
        offloaded.offloaded = true;
        for (Variant variant : {by_rows, offloaded}) {
            const Outcome at_once = run_world(variant);
            for (const std::uint64_t seed : {1U, 2U, 3U}) {
                SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << variant.offloaded << " seed " << seed);
                variant.far = seed;
                const Outcome far = run_world(variant);
                EXPECT_EQ(far.losses, at_once.losses);
                EXPECT_EQ(far.weights, at_once.weights);
                EXPECT_EQ(far.eval_loss, at_once.eval_loss);
            }
        }
    }
}

// Of what follows two steps of a text, by weights that the ranks share.
std::vector<float> generated_logits(std::uint64_t far) {
    const model::Model model = tiny_model(true);
    const auto backend = make_backend(far);
    const ParallelLayout layout = parallel_layout(Sharding::kFullShard, world->rank(), world->size());
    Collectives ranks(*world, *backend);
    const auto weights = GatheredWeightSource::allocate(*backend, model, layout, ranks).value();
    for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
        initialize_weights(weights->store(), unit, *backend);
    }
    auto generation = model::Generation::start(model, *backend, *weights, 3, 4).value();
    std::vector<float> logits(kVocabulary);
    generation.step(std::vector<std::int32_t>{1, 2, 3}, logits);
    generation.step(std::vector<std::int32_t>{4}, logits);
    return logits;
}

TEST(FarDeviceTest, GeneratesTheSameBits) {
    EXPECT_EQ(generated_logits(7), generated_logits(0));
}

// Flips a bit of this process' offloaded state, whose file has no name any more.
void damage_offloaded_state() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const auto target = std::filesystem::read_symlink(entry.path(), error).string();
        if (target.find("atoll-optimizer.rank") == std::string::npos) continue;
        const UniqueFd file(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
        char byte = 0;
        ASSERT_EQ(::pread(file.get(), &byte, 1, 5), 1);
        byte = static_cast<char>(byte ^ 1);
        ASSERT_EQ(::pwrite(file.get(), &byte, 1, 5), 1);
        return;
    }
    ADD_FAILURE() << "there is no file of an offloaded optimizer";
}

TEST(SaveStateTest, WhatOneRankCannotReadLeavesTheLastStateOfAll) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "state.safetensors";
    ASSERT_TRUE(write_file_atomic(file, "the last state").ok());
    Variant variant;
    variant.sharding = Sharding::kFullShard;
    variant.offloaded = true;
    parallel::Run run(*world, variant);
    const bool last = world->rank() == world->size() - 1;
    if (last) damage_offloaded_state();
    const Status saved = run.save(file);
    ASSERT_FALSE(saved.ok());
    if (last) {
        EXPECT_NE(saved.error().message.find("atoll-optimizer.rank"), std::string::npos) << saved.error().message;
    }
    EXPECT_EQ(read_file(file).value(), "the last state");
}

TEST_P(EngineTest, WithoutItTheNumberOfRanksChangesBits) {
    const Outcome outcome = run_world({Sharding::kNone, ActivationCheckpointing::kNone, 1, GetParam()});
    EXPECT_EQ(outcome.losses == run_alone(GetParam()).losses, world->size() == 1);
}

INSTANTIATE_TEST_SUITE_P(TiedAndNot, EngineTest, testing::Bool());

// Bytes of one category in the plan of a rank of four.
std::int64_t planned(tensor::Category category, const Variant& variant) {
    model::Model model = tiny_model(variant.tied);
    model.use_formats(variant.formats);
    const optim::Optimizer optimizer;
    RunMemoryOptions options;
    options.engine = {{1, kLength}, true, {}, variant.activation_checkpointing};
    options.layout = parallel_layout(variant.sharding, 0, 4, variant.shard_group);
    options.optimizer = &optimizer;
    options.offload_optimizer = variant.offloaded;
    const auto backend = kernels::make_cpu_backend(1);
    return RunMemory::measure(**backend, model, options).categories[static_cast<std::size_t>(category)];
}

TEST(RunMemoryTest, EachRecomputationKeepsLess) {
    const std::int64_t layer = tiny_model(false).blocks[1]->saved_bytes({1, kLength});  // of three
    const auto bytes = [](ActivationCheckpointing checkpointing) {
        return planned(tensor::Category::kActivations, {Sharding::kNone, checkpointing});
    };
    EXPECT_EQ(bytes(ActivationCheckpointing::kNone) - bytes(ActivationCheckpointing::kSelective),
              layer);  // of two layers one is left
    EXPECT_EQ(bytes(ActivationCheckpointing::kNone) - bytes(ActivationCheckpointing::kFull), 2 * layer);
}

TEST(RunMemoryTest, FullShardKeepsLessThanNone) {
    using tensor::Category;
    const Variant none, optimizer{Sharding::kShardOptimizer}, full{Sharding::kFullShard};
    Variant hybrid{Sharding::kHybridShard}, hybrid_zero2{Sharding::kHybridShardZero2};
    hybrid.shard_group = hybrid_zero2.shard_group = 2;
    EXPECT_EQ(planned(Category::kWeights, none), 4 * planned(Category::kWeights, full));
    EXPECT_EQ(planned(Category::kMoments, none), 4 * planned(Category::kMoments, optimizer));
    EXPECT_EQ(planned(Category::kMoments, none), 2 * planned(Category::kWeights, none));
    EXPECT_EQ(planned(Category::kWeights, none), 2 * planned(Category::kWeights, hybrid));
    EXPECT_EQ(planned(Category::kWeights, none), planned(Category::kWeights, hybrid_zero2));
    EXPECT_EQ(planned(Category::kMoments, none), 2 * planned(Category::kMoments, hybrid_zero2));
}

TEST(RunMemoryTest, HalvesTakeHalfAndMastersWhatTheMomentsDo) {
    using tensor::Category;
    using tensor::DType;
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kFullShard}) {
        Variant wide, half;
        wide.sharding = half.sharding = sharding;
        half.formats.weights = half.formats.moments = DType::kBF16;
        EXPECT_EQ(planned(Category::kWeights, wide), 2 * planned(Category::kWeights, half));
        EXPECT_EQ(planned(Category::kGather, wide), 2 * planned(Category::kGather, half));
        EXPECT_EQ(planned(Category::kMoments, wide), 2 * planned(Category::kMoments, half));
        EXPECT_EQ(planned(Category::kMoments, wide), 2 * planned(Category::kMasters, half));
        EXPECT_EQ(planned(Category::kMasters, wide), 0);
        EXPECT_EQ(planned(Category::kGradients, wide), planned(Category::kGradients, half));
    }
}

TEST(RunMemoryTest, ActivationsInHalvesTakeHalfAndNoMastersTakeNothing) {
    using tensor::Category;
    using tensor::DType;
    Variant wide, half;
    half.formats = {
        .weights = DType::kBF16, .activations = DType::kBF16, .residual = DType::kBF16, .has_masters = false};
    EXPECT_EQ(planned(Category::kMasters, half), 0);
    // Statistics, log-sums and losses stay fp32.
    EXPECT_LE(planned(Category::kActivations, half), planned(Category::kActivations, wide) * 6 / 10);
}

TEST(RunMemoryTest, OffloadedMastersAndMomentsLeaveThreeBuffers) {
    using tensor::Category;
    Variant variant;
    variant.formats.weights = tensor::DType::kBF16;
    variant.offloaded = true;
    EXPECT_EQ(planned(Category::kMasters, variant), 0);
    constexpr std::int64_t kPage = offload::StateFile::kPageBytes;
    // The largest unit is the embedding, which has less than a chunk.
    const std::int64_t part = offload::StateFile::padded(kVocabulary * 24 * 4);
    EXPECT_NEAR(planned(Category::kMoments, variant), 3 * 3 * part + kPage, 10 * kPage);
}

}  // namespace
}  // namespace atl::parallel

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    auto owner = atl::comm::open_world();
    if (!owner.ok()) return 1;
    atl::parallel::world = owner->get();
    double failed = RUN_ALL_TESTS();
    (*owner)->all_reduce(std::span(&failed, 1), atl::comm::Reduction::kMax);
    return failed == 0 ? 0 : 1;
}
