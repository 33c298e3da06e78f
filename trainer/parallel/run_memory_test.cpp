#include "trainer/parallel/run_memory.h"

#include <gtest/gtest.h>

#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

// The plan of a rank of four.
plan::MemoryPlan plan_of(const Variant& variant) {
    model::Model model = tiny_model(variant.tied);
    model.use_formats(variant.formats);
    const optim::Optimizer optimizer;
    RunMemoryOptions options;
    options.engine = {{1, kLength}, true, {}, {variant.activation_checkpointing, variant.checkpoint_layers}};
    options.layout = parallel_layout(variant.sharding, 0, 4, variant.shard_group);
    options.optimizer = &optimizer;
    options.offload_params = variant.offload_params;
    options.offload_optimizer = variant.offload_optimizer;
    options.has_proximal_term = variant.proximal_mu > 0;
    options.has_control_variate = variant.has_control_variate;
    const auto backend = make_backend(variant.far);
    return RunMemory::measure(*backend, model, options);
}

// Bytes of one category of it.
std::int64_t planned(tensor::Category category, const Variant& variant) {
    return plan_of(variant).categories[static_cast<std::size_t>(category)];
}

// Of three layers; what is computed again shares one memory.
TEST(RunMemoryTest, EachRecomputationKeepsLess) {
    constexpr std::int64_t kTokens = kLength, kChannels = 24, kInner = 40, kHeads = 2;
    const auto padded = [](std::int64_t floats) { return tensor::aligned(4 * floats); };
    const std::int64_t gate_up = padded(2 * kTokens * kInner);
    const std::int64_t attention = padded(kTokens * kChannels) + padded(kTokens * kHeads);
    const std::int64_t layer =
        gate_up + attention + padded(3 * kTokens * kChannels) + padded(kTokens * kChannels) + 2 * padded(kTokens);
    const auto saved = [](ActivationCheckpointing checkpointing, std::int64_t layers = 0) {
        Variant variant{Sharding::kNone, checkpointing};
        variant.checkpoint_layers = layers;
        return planned(tensor::Category::kActivations, {Sharding::kNone, ActivationCheckpointing::kNone}) -
               planned(tensor::Category::kActivations, variant);
    };
    EXPECT_EQ(saved(ActivationCheckpointing::kFeedForward), 2 * gate_up);
    EXPECT_EQ(saved(ActivationCheckpointing::kSelective), layer);
    EXPECT_EQ(saved(ActivationCheckpointing::kAllButAttention), 2 * (layer - attention));
    EXPECT_EQ(saved(ActivationCheckpointing::kFull), 2 * layer);
    EXPECT_EQ(saved(ActivationCheckpointing::kFull, 2), layer);
    EXPECT_EQ(saved(ActivationCheckpointing::kFull, 1), 0);
}

// The largest two blocks, embedding and head, are never gathered or reduced together.
TEST(RunMemoryTest, BuffersUnderFullShardAreOfTwoNeighboursNotOfTheLargestBlockTwice) {
    using tensor::Category;
    constexpr std::int64_t kVocabularySize = 128256, kHidden = 4096, kInner = 14336, kKeys = 1024;
    const auto config = model_config::parse_config(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": false})");
    model::Model model = model::make_model(*config);
    constexpr tensor::DType kBF16 = tensor::DType::kBF16;
    model.use_formats({.weights = kBF16});
    const optim::Optimizer optimizer;
    RunMemoryOptions options;
    options.engine.largest = {1, 16};
    options.optimizer = &optimizer;
    const auto backend = kernels::make_cpu_backend(1);
    const auto planned_bytes = [&](Sharding sharding, Category category) {
        options.layout = parallel_layout(sharding, 0, 8);
        return RunMemory::measure(**backend, model, options).categories[static_cast<std::size_t>(category)];
    };
    constexpr std::int64_t kLayer = 2 * kHidden * (kHidden + kKeys) + 3 * kHidden * kInner + 2 * kHidden;
    constexpr std::int64_t kHead = kVocabularySize * kHidden + kHidden;
    constexpr std::int64_t kAll = 32 * kLayer + kHead + kVocabularySize * kHidden;
    EXPECT_EQ(planned_bytes(Sharding::kFullShard, Category::kGather), 2 * (kLayer + kHead));
    EXPECT_EQ(planned_bytes(Sharding::kFullShard, Category::kGradients), 4 * kAll / 8 + 4 * (kLayer + kHead));
    // What gradients take on their way; one rank exchanges nothing.
    const std::int64_t with_scratch = planned_bytes(Sharding::kFullShard, Category::kWorkspace);
    options.layout = parallel_layout(Sharding::kNone, 0, 1);
    const std::int64_t without =
        RunMemory::measure(**backend, model, options).categories[static_cast<std::size_t>(Category::kWorkspace)];
    EXPECT_EQ(with_scratch - without, 4 * 2 * ExchangeLibrary::kReduceElementsMax);
    model.use_formats({.weights = kBF16, .activations = kBF16, .gradients = kBF16, .reduced = kBF16});
    EXPECT_EQ(planned_bytes(Sharding::kFullShard, Category::kGradients), 4 * kAll / 8 + 2 * (kLayer + kHead));
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
    half.formats = {.weights = DType::kBF16, .activations = DType::kBF16, .residual = DType::kBF16, .masters = {}};
    EXPECT_EQ(planned(Category::kMasters, half), 0);
    // Statistics, log-sums and losses stay fp32.
    EXPECT_LE(planned(Category::kActivations, half), planned(Category::kActivations, wide) * 6 / 10);
}

TEST(RunMemoryTest, AProximalTermTakesTheRanksShardOfTheExactWeights) {
    using tensor::Category;
    Variant variant;
    EXPECT_EQ(planned(Category::kStartWeights, variant), 0);
    variant.proximal_mu = 0.1;
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kFullShard}) {
        variant.sharding = sharding;
        EXPECT_EQ(planned(Category::kStartWeights, variant), planned(Category::kWeights, {Sharding::kFullShard}));
        Variant half = variant;
        half.formats.weights = tensor::DType::kBF16;
        EXPECT_EQ(planned(Category::kStartWeights, half), planned(Category::kStartWeights, variant)) << "of masters";
        half.formats.masters.reset();
        EXPECT_EQ(2 * planned(Category::kStartWeights, half), planned(Category::kStartWeights, variant));
    }
}

TEST(RunMemoryTest, AControlVariateTakesTwoOfTheRanksShardInFp32) {
    using tensor::Category;
    Variant variant;
    EXPECT_EQ(planned(Category::kControlVariate, variant), 0);
    variant.has_control_variate = true;
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kFullShard}) {
        variant.sharding = sharding;
        EXPECT_EQ(planned(Category::kControlVariate, variant), 2 * planned(Category::kWeights, {Sharding::kFullShard}));
        Variant half = variant;
        half.formats.weights = half.formats.moments = tensor::DType::kBF16;
        EXPECT_EQ(planned(Category::kControlVariate, half), planned(Category::kControlVariate, variant));
    }
}

TEST(RunMemoryTest, OffloadedMastersAndMomentsLeaveThreeBuffers) {
    using tensor::Category;
    Variant variant;
    variant.formats.weights = tensor::DType::kBF16;
    variant.offload_optimizer = Offload::kNvme;
    EXPECT_EQ(planned(Category::kMasters, variant), 0);
    constexpr std::int64_t kPage = offload::StateFile::kPageBytes;
    // The largest unit is the embedding, which has less than a chunk.
    const std::int64_t part = offload::StateFile::padded(kVocabulary * 24 * 4);
    EXPECT_NEAR(planned(Category::kMoments, variant), 3 * 3 * part + kPage, 10 * kPage);
}

// What the shards take on their way from a device's memory to the other ranks; the host sends its own from where they
// are.
std::int64_t shards_of_two_neighbours(Variant variant) {
    variant.far = 0;
    const int ranks = variant.shard_group > 0 && is_hybrid(variant.sharding) ? variant.shard_group : 4;
    return planned(tensor::Category::kGather, variant) / ranks;
}

TEST(RunMemoryTest, WeightsInTheHostsMemoryLeaveTheDevicesToTheByte) {
    using tensor::Category;
    for (const Sharding sharding : {Sharding::kFullShard, Sharding::kHybridShard}) {
        Variant variant{.sharding = sharding, .shard_group = 2, .far = 1};
        variant.formats.weights = tensor::DType::kBF16;
        plan::MemoryPlan kept = plan_of(variant);
        variant.offload_params = Offload::kCpu;
        const plan::MemoryPlan moved = plan_of(variant);
        const std::int64_t weights = planned(Category::kWeights, variant);
        const std::int64_t left = shards_of_two_neighbours(variant);
        EXPECT_EQ(kept.device_bytes - moved.device_bytes, weights);
        EXPECT_EQ(moved.pinned_bytes - kept.pinned_bytes, weights - left);
        kept.categories[static_cast<std::size_t>(Category::kGather)] -= left;
        EXPECT_EQ(moved.categories, kept.categories);
        variant.offload_optimizer = Offload::kCpu;
        const std::int64_t state = planned(Category::kMasters, variant) + planned(Category::kMoments, variant);
        EXPECT_EQ(moved.device_bytes - plan_of(variant).device_bytes, state);
        EXPECT_EQ(plan_of(variant).pinned_bytes - moved.pinned_bytes, state);
    }
}

// Blocks need room for what they read in its place.
TEST(RunMemoryTest, WholeWeightsInTheHostsMemoryLeaveTwoNeighboursOnTheDevice) {
    using tensor::Category;
    Variant variant{.far = 1};
    const plan::MemoryPlan kept = plan_of(variant);
    variant.offload_params = Offload::kCpu;
    const plan::MemoryPlan moved = plan_of(variant);
    EXPECT_EQ(kept.device_bytes - moved.device_bytes,
              planned(Category::kWeights, variant) - planned(Category::kGather, variant));
    EXPECT_EQ(planned(Category::kGather, variant), planned(Category::kGather, {.sharding = Sharding::kFullShard}));
}

// A device with so much memory.
class SmallDevice : public FarBackend {
  public:
    explicit SmallDevice(std::int64_t bytes) : FarBackend(kernels::make_cpu_backend(1).value()), bytes_(bytes) {}
    Result<tensor::Memory> allocate(kernels::Space space, std::int64_t bytes) override {
        if (space == kernels::Space::kDevice && bytes > bytes_)
            return Error{ErrorCode::kResourceExhausted, "no room", {}};
        return FarBackend::allocate(space, bytes);
    }

  private:
    std::int64_t bytes_;
};

TEST(RunMemoryTest, ARunThatTheDeviceHasNoRoomForIsToldToUseTheHosts) {
    const model::Model model = tiny_model(false);
    const optim::Optimizer optimizer;
    RunMemoryOptions options;
    options.engine.largest = {1, kLength};
    options.optimizer = &optimizer;
    const auto refusal = [&](std::int64_t bytes) {
        SmallDevice device(bytes);
        const auto memory = RunMemory::allocate(device, model, options);
        return memory.ok() ? "" : memory.error().message;
    };
    const std::string refused = refusal(1000);
    EXPECT_NE(refused.find("--offload-params cpu --offload-optimizer cpu"), std::string::npos) << refused;
    options.offload_params = Offload::kCpu;
    EXPECT_NE(refusal(1000).find("; with --offload-optimizer cpu it is"), std::string::npos) << refusal(1000);
    options.offload_optimizer = Offload::kCpu;
    EXPECT_EQ(refusal(1000), "no room");
    SmallDevice device(0);
    EXPECT_EQ(refusal(RunMemory::measure(device, model, options).device_bytes), "");
}

TEST(RunMemoryTest, WhereTheHostReachesTheDevicesMemoryThereIsNoOther) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard}) {
        Variant variant{.sharding = sharding};
        const plan::MemoryPlan kept = plan_of(variant);
        variant.offload_params = variant.offload_optimizer = Offload::kCpu;
        const plan::MemoryPlan asked = plan_of(variant);
        EXPECT_EQ(asked.categories, kept.categories);
        EXPECT_EQ(asked.device_bytes, kept.device_bytes);
        EXPECT_EQ(asked.pinned_bytes, kept.pinned_bytes);
    }
}

}  // namespace
}  // namespace atl::parallel
