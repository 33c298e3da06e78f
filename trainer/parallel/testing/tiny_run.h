#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <random>

#include "shared/base/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/kernels/testing/far_backend.h"
#include "trainer/model/initialize.h"
#include "trainer/model/lora.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/parallel/training_step.h"
#include "trainer/weights/storage.h"

// A few steps of a tiny model by the parts of a run, without files, in every variant that the engine has.
namespace atl::parallel {

using kernels::FarBackend;
using run_settings::Offload;

inline comm::Comm* world = nullptr;  // all ranks that run the tests

constexpr Sharding kShardings[] = {Sharding::kNone,      Sharding::kShardOptimizer, Sharding::kShardGradOp,
                                   Sharding::kFullShard, Sharding::kHybridShard,    Sharding::kHybridShardZero2};
constexpr std::int64_t kGlobalRows = 8;
constexpr std::int64_t kLength = 12;
constexpr std::int64_t kVocabulary = 600;  // so that MPI does not send a table's gradient at once
constexpr double kNominalTargets = 8;
constexpr int kSteps = 3;

inline model::Model tiny_model(bool tied) {
    const std::string text = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 600,
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": )" +
                             std::string(tied ? "true}" : "false}");
    const auto config = model_config::parse_config(text);
    check(config.ok(), config.ok() ? "" : config.error().message);
    return model::make_model(*config);
}

struct Rows {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> segments;  // ids of documents; none: a row is one document
};

// Row i has i targets that do not count, so that ranks have unequal numbers of targets.
inline Rows rows_of_step(int step, std::int64_t count) {
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

inline std::vector<std::int32_t> two_documents_a_row(std::int64_t count) {
    std::vector<std::int32_t> segments;
    for (std::int64_t row = 0; row < count; ++row)
        for (std::int64_t t = 0; t < kLength; ++t) segments.push_back(t < 2 + row % (kLength - 3) ? 1 : 2);
    return segments;
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
    Offload offload_optimizer = Offload::kNone;
    std::int64_t checkpoint_layers = 0;
    double proximal_mu = 0;
    Offload offload_params = Offload::kNone;
    std::int64_t lora_rank = 0;  // adapters of all linears on a frozen model; 0: none
    std::uint64_t far = 0;       // the device is a FarBackend with this seed; 0: the CPU
    std::function<std::unique_ptr<kernels::Backend>()> open_device = {};  // or the one that this gives
    std::function<std::shared_ptr<const ExchangeLibrary>(kernels::Backend&)> open_library = {};  // none: MPI
    std::int64_t reduce_scratch = ExchangeLibrary::kReduceElementsMax;
    bool packed = false;  // every other step has rows of two documents
    bool has_control_variate = false;
    bool corrects = false;  // gradients, by correction_value()
    int tensor = 1;         // ranks that have the same rows and, as long as layers are not cut, the same model
};

struct Outcome {
    std::vector<double> losses;
    std::vector<float> weights;  // on rank 0; none of a model that several parts of a mesh have whole
    double eval_loss = 0;
    std::vector<float> gradient_sums = {};  // as the weights, where there is a control variate
};

inline void expect_same_bits(const Outcome& outcome, const Outcome& reference) {
    EXPECT_EQ(outcome.losses, reference.losses);
    EXPECT_EQ(outcome.weights, reference.weights);
    EXPECT_EQ(outcome.eval_loss, reference.eval_loss);
}

// Of losses or of weights.
template <class Number>
double l2_distance(const std::vector<Number>& one, const std::vector<Number>& other) {
    double sum = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
        sum += std::pow(static_cast<double>(one[i]) - static_cast<double>(other[i]), 2);
    return std::sqrt(sum);
}

inline std::unique_ptr<kernels::Backend> make_backend(std::uint64_t far) {
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

inline void initialize_weights(const ParameterStore& store, std::size_t unit, kernels::Backend& backend) {
    const Tensor& weights = store.weights(unit);
    initialize_range(store.model().units[unit], store.kept_begin(weights, unit), weights.element_count(),
                     [&](std::int64_t at, std::span<const float> values) {
                         const auto count = static_cast<std::int64_t>(values.size());
                         check(weights::store_values(values, flat_range(weights, at, count), backend), "does not fit");
                     });
}

// What is added to element `index` of a unit's gradient.
inline float correction_value(std::size_t unit, std::int64_t index) {
    return static_cast<float>((index * 7 + static_cast<std::int64_t>(unit)) % 129 - 64) / 2048;
}

// A few steps of AdamW by the parts of a run, without files.
class Run {
  public:
    Run(comm::Comm& comm, const Variant& variant)
        : comm_(comm),
          variant_(variant),
          model_(tiny_model(variant.tied)),
          backend_(variant.open_device ? variant.open_device() : make_backend(variant.far)),
          library_(variant.open_library ? variant.open_library(*backend_) : open_exchange_library(*backend_)) {
        if (variant.open_library) wait_by_ranks(*backend_, comm, library_);
        if (variant.lora_rank > 0) {
            const Status added =
                model::add_adapters(model_, {.rank = variant.lora_rank, .alpha = 8, .targets = {"all-linear"}});
            check(added.ok(), "no adapters");
        }
        model_.use_formats(variant.formats);
        optimizer_.kind = variant.optimizer;
        RunMemoryOptions& options = options_;
        Mesh mesh = sharding_mesh(variant.sharding, comm.size() / variant.tensor, variant.shard_group);
        mesh.tensor = variant.tensor;
        options.layout = layout_ = parallel_layout(variant.sharding, mesh, comm.rank());
        micro_ = fixed_tree() ? 1 : kGlobalRows / layout_.data_ranks() / variant.accumulation;
        accumulation_ = fixed_tree() ? variant.fixed_tree_sequences / layout_.data_ranks() : variant.accumulation;
        options.engine = {{micro_, kLength},
                          true,
                          {accumulation_, variant.fixed_tree_sequences, variant.reduce_scratch},
                          {variant.activation_checkpointing, variant.checkpoint_layers}};
        options.library = library_.get();
        options.optimizer = &optimizer_;
        options.offload_params = variant.offload_params;
        options.offload_optimizer = variant.offload_optimizer;
        options.offload_dir = directory_.path();
        options.has_proximal_term = variant.proximal_mu > 0;
        options.has_control_variate = variant.has_control_variate;
        auto memory = RunMemory::allocate(*backend_, model_, options);
        check(memory.ok(), "no memory");
        memory_ = std::move(memory).value();
        ranks_ = std::make_unique<ProcessGroups>(comm, options.layout, *backend_, library_.get());
        step_ = std::make_unique<TrainingStep>(step_rules(), *memory_, *backend_, comm, *ranks_);
        memory_->scalars().set(*backend_, {});
        initialize();
        if (variant.proximal_mu > 0)
            check(memory_->proximal_term().set_start(*backend_, memory_->store()).ok(), "the start is not kept");
        if (variant.has_control_variate) begin_control_variate();
    }

    Outcome run() {
        Outcome outcome;
        for (int step = 1; step <= kSteps; ++step) {
            begin_step(step);
            if (step > 1) outcome.losses.push_back(read_loss());
        }
        outcome.losses.push_back(read_loss());
        std::array<double, 1> sum{};
        for (std::int64_t micro = 0; micro < accumulation_; ++micro) {
            load(rows_of_step(0, rows()), first_row(micro));
            sum[0] +=
                memory_->engine().evaluate(*backend_, *ranks_, &memory_->batch().batch(), memory_->scalars().loss());
        }
        comm::Comm& sharing = ranks_->sharing().comm();
        sharing.all_reduce(sum, comm::Reduction::kSum);
        outcome.eval_loss = sum[0];
        outcome.weights = weights();
        if (variant_.has_control_variate) outcome.gradient_sums = gather(ParameterStore::Saved::kGradientSum);
        return outcome;
    }

    // As an Outcome has them; before run() those that it begins with.
    std::vector<float> weights() { return gather(ParameterStore::Saved::kExactWeights); }
    std::vector<float> gather(ParameterStore::Saved saved) {
        std::vector<float> all;
        if (variant_.tensor > 1) return all;
        GatherToRank0 pieces(*backend_, comm_, memory_->store(), saved);
        for (const PlacedTensor& tensor : placed_tensors(memory_->store(), nullptr)) {
            const Status read = pieces.gather(
                tensor, [&](std::span<const float> values) { all.insert(all.end(), values.begin(), values.end()); });
            EXPECT_TRUE(read.ok());
        }
        return all;
    }

    Status save(const std::filesystem::path& file) {
        return checkpoint::save_checkpoint(file, memory_->store(), *backend_, comm_, {}, "{}");
    }

    Result<std::optional<checkpoint::TrainerState>> load(const std::filesystem::path& file) {
        return checkpoint::load_checkpoint(file, memory_->store(), *backend_, comm_, "{}", false);
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

    void begin_control_variate() {
        ParameterStore& store = memory_->store();
        memory_->control_variate().begin(*backend_, store);
        for (std::size_t unit = 0; variant_.corrects && unit < store.unit_count(); ++unit) {
            std::vector<float> values;
            for (std::int64_t i = 0; i < store.shard_spec(unit).element_count; ++i)
                values.push_back(correction_value(unit, i));
            memory_->control_variate().set_correction(*backend_, store, unit, 0, values);
        }
    }

    std::int64_t load(const Rows& rows, std::int64_t first) {
        const auto part = [&](const std::vector<std::int32_t>& values) {
            return std::span(values).subspan(static_cast<std::size_t>(first * kLength),
                                             static_cast<std::size_t>(micro_ * kLength));
        };
        const auto segments = rows.segments.empty() ? std::span<const std::int32_t>() : part(rows.segments);
        const auto counts =
            memory_->batch().load(*backend_, {{micro_, kLength}, part(rows.ids), part(rows.labels), segments});
        check(counts.ok(), "the batch does not load");
        std::int64_t sum = 0;
        for (const std::int64_t count : *counts) sum += count;
        return sum;
    }

    StepRules step_rules() const {
        return {.micro_steps = accumulation_,
                .by_sequence = fixed_tree(),
                .nominal_targets = kNominalTargets,
                .gradient_norm_max = 0.5,
                .proximal_mu = variant_.proximal_mu,
                .has_control_variate = variant_.has_control_variate,
                .optimizer = optimizer_,
                .decay_norms = false,
                .seed = 3,
                .has_file = variant_.offload_optimizer == Offload::kNvme};
    }

    bool fixed_tree() const { return variant_.fixed_tree_sequences > 0; }
    std::int64_t rows() const { return fixed_tree() ? variant_.fixed_tree_sequences : kGlobalRows; }
    std::int64_t first_row(std::int64_t micro) const {
        if (fixed_tree()) return micro * layout_.data_ranks() + layout_.data_rank();
        return (layout_.data_rank() * accumulation_ + micro) * micro_;
    }

  public:
    void begin_step(int number) {
        Rows rows = rows_of_step(number, this->rows());
        if (variant_.packed && number % 2 == 1) rows.segments = two_documents_a_row(this->rows());
        constexpr double kLossScale = 1, kRate = 1e-2;
        const double embedding_rate = variant_.optimizer == optim::OptimizerKind::kMuon ? 2 * kRate : kRate;
        const auto begun = step_->begin({kRate, embedding_rate}, kLossScale,
                                        [&](std::int64_t micro) { return load(rows, first_row(micro)); });
        check(begun.ok(), "the step is not made");
        begun_.push_back(*begun);
    }
    // Of the oldest step that was not read.
    double read_loss() {
        read_ = std::move(begun_.front());
        begun_.pop_front();
        return memory_->scalars().receive(*backend_, {}).loss / read_.targets;
    }
    // The last one that was.
    const TrainingStep::Begun& read_step() const { return read_; }

    // Without a sum over ranks of anything but gradients.
    void micro_step() {
        load(rows_of_step(1, rows()), first_row(0));
        memory_->engine().train(
            *backend_, *ranks_, memory_->batch().batch(),
            {.gradient_scale = static_cast<float>(1 / kNominalTargets), .loss_sum = memory_->scalars().loss()});
        memory_->engine().gradients().finish(*backend_, *ranks_);
    }

    plan::MemoryPlan plan() const { return RunMemory::measure(*backend_, model_, options_); }

    kernels::Backend& device() { return *backend_; }
    const FarBackend& far_device() const { return static_cast<const FarBackend&>(*backend_); }

  private:
    comm::Comm& comm_;
    Variant variant_;
    model::Model model_;
    RunMemoryOptions options_;
    ParallelLayout layout_;
    std::unique_ptr<kernels::Backend> backend_;
    std::shared_ptr<const ExchangeLibrary> library_;
    optim::Optimizer optimizer_{optim::OptimizerKind::kAdamW, 0.9, 0.99, 1e-8, 0.1, 0.9};
    TemporaryDirectory directory_;
    std::int64_t micro_ = 0;
    std::int64_t accumulation_ = 1;
    std::unique_ptr<RunMemory> memory_;
    std::unique_ptr<ProcessGroups> ranks_;
    std::unique_ptr<TrainingStep> step_;
    std::deque<TrainingStep::Begun> begun_;  // and not read
    TrainingStep::Begun read_;
};

inline Outcome run_on(comm::Comm& comm, const Variant& variant) {
    return Run(comm, variant).run();
}

inline Outcome run_world(const Variant& variant) {
    return run_on(*world, variant);
}

inline Outcome run_alone(bool tied) {
    const auto self = comm::make_self();
    Variant variant;
    variant.tied = tied;
    return Run(*self, variant).run();
}

}  // namespace atl::parallel
