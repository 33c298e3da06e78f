// Attention against a naive fp64 reference, values and gradients, on every backend.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <tuple>

#include "trainer/kernels/cpu/attention_tiles.h"
#include "trainer/kernels/cpu/simd_kernels.h"
#include "trainer/kernels/testing/attention_reference.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {
namespace {

struct Case {
    const char* name;
    AttentionShape shape;
    std::vector<std::int64_t> segments;  // lengths of the documents in each row; empty: one
};

void PrintTo(const Case& value, std::ostream* out) {
    *out << value.name;
}

const Case kCases[] = {
    {"OneToken", {1, 1, 2, 2, 8}, {}},
    {"OddSizes", {2, 37, 3, 3, 10}, {}},
    {"Grouped", {1, 70, 6, 2, 24}, {}},
    {"OneKeyHead", {2, 64, 4, 1, 64}, {}},
    {"Packed", {2, 130, 2, 1, 16}, {1, 40, 24, 65}},
    {"OnePerDocument", {1, 40, 1, 1, 4}, std::vector<std::int64_t>(40, 1)},
    {"TwoHeadsATile", {2, 200, 6, 2, 8}, {}},  // of three: 2 and 1
    {"Long", {1, 1100, 4, 2, 8}, {}},
    {"LongAndPacked", {2, 600, 2, 2, 8}, {100, 450, 50}},
    {"OneKeyHeadAndPacked", {1, 600, 3, 1, 12}, {100, 450, 50}},
    {"StepOfManyHeads", {2, 1, 70, 2, 20}, {}},
    {"LargeHeadsPacked", {1, 150, 2, 1, 128}, {37, 20, 93}},
    {"VeryLargeHeads", {1, 40, 2, 1, 320}, {15, 25}},
    {"ManyKeyHeads", {1, 600, 60, 60, 2}, {100, 450, 50}},  // more than a GPU takes at once, in the backward pass
};

OnDevice<std::byte> empty_matrix(Backend& backend, tensor::DType format, std::int64_t rows, std::int64_t columns) {
    const auto bytes = static_cast<std::size_t>(tensor::size_bytes(format, rows * columns));
    return {backend, format, {rows, columns}, std::vector<std::byte>(bytes)};
}

class AttentionTest : public ::testing::TestWithParam<std::tuple<Case, std::string>> {
  protected:
    const AttentionShape shape_ = std::get<0>(GetParam()).shape;
    const std::int64_t rows_ = shape_.batch * shape_.length, width_ = shape_.heads * shape_.head_channels;
    std::unique_ptr<Backend> backend_ = make_tested_backend(std::get<1>(GetParam()));
    tensor::Arena workspace_{backend_->allocate(backend_->attention_workspace_bytes(shape_)).value()};
    const OnDevice<> qkv_ = random(*backend_, {rows_, shape_.qkv_columns()}, 1, 1.5F),
                     dout_ = random(*backend_, {rows_, width_}, 2);
    const OnDevice<std::int32_t> starts_ = integers(*backend_, make_starts());
    const AttentionReference reference_{shape_, qkv_, starts_.given, dout_};

    std::vector<std::int32_t> make_starts() const {
        std::vector<std::int32_t> starts;
        for (std::int64_t b = 0; b < shape_.batch; ++b) {
            std::int64_t begin = 0;
            for (const std::int64_t length : std::get<0>(GetParam()).segments) {
                starts.insert(starts.end(), static_cast<std::size_t>(length), static_cast<std::int32_t>(begin));
                begin += length;
            }
        }
        starts.resize(static_cast<std::size_t>(rows_), 0);
        return starts;
    }
};

TEST_P(AttentionTest, ForwardAndBackwardAreTheDefinition) {
    const OnDevice<std::byte> kept = attention_kept(*backend_, shape_);
    OnDevice<> out(*backend_, {rows_, width_});
    OnDevice<> gradient(*backend_, {rows_, shape_.qkv_columns()});
    backend_->attention_forward(shape_, qkv_.tensor, {starts_.tensor}, out.tensor, kept.tensor, workspace_);
    EXPECT_LE(relative_l2(out, reference_.out), kOpTolerance);
    backend_->attention_backward(shape_, qkv_.tensor, {starts_.tensor}, out.tensor, kept.tensor, dout_.tensor, {},
                                 gradient.tensor, workspace_);
    EXPECT_LE(relative_l2(gradient, reference_.qkv_gradient), kOpTolerance);
    if (std::get<1>(GetParam()) == kGpu) {
        EXPECT_EQ(workspace_.peak_bytes(), workspace_.size_bytes());
    }
}

TEST_P(AttentionTest, GradientsOfTurnedQueriesAndKeysAreTurnedBack) {
    const std::int64_t channels = shape_.head_channels;
    const OnDevice<> table = random(*backend_, {shape_.length, channels}, 3);
    std::vector<std::int32_t> each(static_cast<std::size_t>(rows_));
    for (std::size_t i = 0; i < each.size(); ++i)
        each[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % shape_.length);
    const OnDevice<std::int32_t> positions = integers(*backend_, each);
    const OnDevice<std::byte> kept = attention_kept(*backend_, shape_);
    OnDevice<> out(*backend_, {rows_, width_});
    OnDevice<> expected(*backend_, {rows_, shape_.qkv_columns()}), gradient(*backend_, {rows_, shape_.qkv_columns()});
    backend_->attention_forward(shape_, qkv_.tensor, {starts_.tensor}, out.tensor, kept.tensor, workspace_);
    backend_->attention_backward(shape_, qkv_.tensor, {starts_.tensor}, out.tensor, kept.tensor, dout_.tensor, {},
                                 expected.tensor, workspace_);
    backend_->rope(shape_, table.tensor, positions.tensor, expected.tensor, true);
    backend_->attention_backward(shape_, qkv_.tensor, {starts_.tensor}, out.tensor, kept.tensor, dout_.tensor,
                                 {table.tensor, positions.tensor}, gradient.tensor, workspace_);
    const std::vector<float> values = expected.read();
    EXPECT_LE(relative_l2(gradient, {values.begin(), values.end()}), kOpTolerance);
}

TEST_P(AttentionTest, WithoutStartsASequenceIsOneDocument) {
    const OnDevice<std::int32_t> zeros =
        integers(*backend_, std::vector<std::int32_t>(static_cast<std::size_t>(rows_), 0));
    std::vector<std::vector<float>> results;
    for (const Tensor& starts : {zeros.tensor, Tensor()}) {
        const OnDevice<std::byte> kept = attention_kept(*backend_, shape_);
        const OnDevice<> out(*backend_, {rows_, width_}), gradient(*backend_, {rows_, shape_.qkv_columns()});
        backend_->attention_forward(shape_, qkv_.tensor, {starts}, out.tensor, kept.tensor, workspace_);
        backend_->attention_backward(shape_, qkv_.tensor, {starts}, out.tensor, kept.tensor, dout_.tensor, {},
                                     gradient.tensor, workspace_);
        results.push_back(out.read());
        results.push_back(gradient.read());
    }
    EXPECT_EQ(results[0] == results[2], true);
    EXPECT_EQ(results[1] == results[3], true);
}

// Of a CPU: a GPU may have a kernel for each.
TEST_P(AttentionTest, AnEmptyCacheChangesNoBit) {
    if (std::get<1>(GetParam()) == kGpu) return;
    const OnDevice<std::int32_t> starts =  // a cache knows no documents
        integers(*backend_, std::vector<std::int32_t>(static_cast<std::size_t>(rows_), 0));
    const std::int64_t width = shape_.kv_heads * shape_.head_channels;
    for (const tensor::DType format : {tensor::DType::kF32, tensor::DType::kBF16}) {
        AttentionShape shape = shape_;
        shape.format = format;
        const auto make = [&](std::int64_t rows, std::int64_t columns) {
            return empty_matrix(*backend_, format, rows, columns);
        };
        const auto qkv = make(rows_, shape.qkv_columns()), out = make(rows_, width_), whole = make(rows_, width_);
        const auto keys = make(rows_, width), values = make(rows_, width);
        if (format == tensor::DType::kF32) backend_->copy(qkv_.tensor, qkv.tensor);
        if (format != tensor::DType::kF32) backend_->convert(qkv_.tensor, qkv.tensor);
        const OnDevice<std::byte> kept = attention_kept(*backend_, shape);
        tensor::Arena workspace(backend_->allocate(backend_->attention_workspace_bytes(shape)).value());
        backend_->attention_forward(shape, qkv.tensor, {starts.tensor}, out.tensor, kept.tensor, workspace);
        tensor::Arena for_cache(
            backend_->allocate(backend_->attention_cached_workspace_bytes(shape, shape.length)).value());
        backend_->attention_cached(shape, qkv.tensor, 0, keys.tensor, values.tensor, whole.tensor, for_cache);
        EXPECT_EQ(out.read() == whole.read(), true);
    }
}

// What one thread computes, and more of them, for whom the same is cut otherwise.
TEST_P(AttentionTest, ThreadsChangeNoBitAndTheWorkspaceIsWhatTheyNeed) {
    const std::int64_t width = shape_.kv_heads * shape_.head_channels, past = 70;
    if (std::get<1>(GetParam()) == kGpu) return;
    for (const tensor::DType format : {tensor::DType::kF32, tensor::DType::kBF16}) {
        std::vector<std::vector<std::byte>> first;
        for (const int threads : {1, 2, 3, 5}) {
            const auto backend = make_tested_backend(std::get<1>(GetParam()), threads);
            const auto make = [&](std::int64_t rows, std::int64_t columns, unsigned seed) {
                const OnDevice<> wide = random(*backend, {rows, columns}, seed);
                OnDevice<std::byte> kept = empty_matrix(*backend, format, rows, columns);
                if (format == tensor::DType::kF32) backend->copy(wide.tensor, kept.tensor);
                if (format != tensor::DType::kF32) backend->convert(wide.tensor, kept.tensor);
                return kept;
            };
            AttentionShape shape = shape_;
            shape.format = format;
            const auto qkv = make(rows_, shape.qkv_columns(), 1), out_gradient = make(rows_, width_, 2);
            const auto out = make(rows_, width_, 3), gradient = make(rows_, shape.qkv_columns(), 4);
            const OnDevice<std::int32_t> starts = integers(*backend, starts_.given);
            const OnDevice<std::byte> kept = attention_kept(*backend, shape);
            tensor::Arena workspace(backend->allocate(backend->attention_workspace_bytes(shape)).value());
            backend->attention_forward(shape, qkv.tensor, {starts.tensor}, out.tensor, kept.tensor, workspace);
            backend->attention_backward(shape, qkv.tensor, {starts.tensor}, out.tensor, kept.tensor,
                                        out_gradient.tensor, {}, gradient.tensor, workspace);
            EXPECT_EQ(workspace.peak_bytes(), workspace.size_bytes());
            const std::int64_t keys = past + shape.length;
            const auto key_cache = make(shape.batch * keys, width, 5), value_cache = make(shape.batch * keys, width, 6);
            const auto continued = make(rows_, width_, 7);
            tensor::Arena for_cache(backend->allocate(backend->attention_cached_workspace_bytes(shape, keys)).value());
            backend->attention_cached(shape, qkv.tensor, past, key_cache.tensor, value_cache.tensor, continued.tensor,
                                      for_cache);
            EXPECT_LE(for_cache.peak_bytes(), for_cache.size_bytes());
            const std::vector<std::vector<std::byte>> results = {out.read(), gradient.read(), key_cache.read(),
                                                                 value_cache.read(), continued.read()};
            if (first.empty()) first = results;
            for (std::size_t i = 0; i < first.size(); ++i)
                EXPECT_EQ(first[i] == results[i], true) << threads << " threads, matrix " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::ValuesIn(tested_backends())),
                         [](const auto& instance) {
                             return std::string(std::get<0>(instance.param).name) + "_" + std::get<1>(instance.param);
                         });

TEST(AttentionControlTest, AScaleOfOnePercentMoreIsFarOff) {
    const AttentionShape shape{.batch = 1, .length = 20, .heads = 2, .kv_heads = 1, .head_channels = 8};
    const auto backend = make_cpu_backend(1).value();
    const OnDevice<> qkv = random(*backend, {20, 32}, 1, 1.5F), dout = random(*backend, {20, 16}, 2);
    const OnDevice<std::int32_t> starts = integers(*backend, std::vector<std::int32_t>(20, 0));
    OnDevice<> scaled(*backend, {20, 32}), out(*backend, {20, 16});
    const OnDevice<std::byte> kept = attention_kept(*backend, shape);
    std::vector<float> values = qkv.given;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= i % 32 < 16 ? 1.01F : 1.0F;
    scaled.write(values);
    tensor::Arena workspace(backend->allocate(1 << 20).value());
    backend->attention_forward(shape, scaled.tensor, {starts.tensor}, out.tensor, kept.tensor, workspace);
    EXPECT_GT(relative_l2(out, AttentionReference(shape, qkv, starts.given, dout).out), 100 * kOpTolerance);
}

TEST(AttentionTilesTest, OneSequenceHasWorkForManyThreads) {
    const auto tiles = [](std::int64_t batch, std::int64_t length, int threads) {
        const AttentionShape shape{.batch = batch, .length = length, .heads = 32, .kv_heads = 8, .head_channels = 128};
        return cpu::attention_forward_tiles(shape, length, threads).count();
    };
    EXPECT_EQ(tiles(1, 512, 32), 4 * 8) << "a head each";
    EXPECT_EQ(tiles(1, 2048, 32), 4 * 4 * 8) << "and 512 of its queries";
    EXPECT_EQ(tiles(1, 100, 32), 8) << "fewer queries are not worth packing their keys";
    EXPECT_EQ(tiles(1, 2048, 2), 8) << "enough for two threads";
    EXPECT_EQ(tiles(16, 2048, 32), 16 * 8);
}

TEST(AttentionTilesTest, TheBackwardPassOfOneSequenceIsSplitForManyThreads) {
    const auto splits = [](std::int64_t batch, std::int64_t length, int threads) {
        return cpu::splits_attention_backward(
            {.batch = batch, .length = length, .heads = 32, .kv_heads = 8, .head_channels = 128}, threads);
    };
    EXPECT_TRUE(splits(1, 2048, 32));
    EXPECT_TRUE(splits(1, 512, 32));
    EXPECT_FALSE(splits(1, 100, 32)) << "one block of keys, and of queries, is the whole";
    EXPECT_FALSE(splits(1, 2048, 2)) << "four groups a thread, with five products in place of seven";
    EXPECT_FALSE(splits(1, 2048, 8)) << "a group each";
    EXPECT_TRUE(splits(1, 2048, 6)) << "eight groups take six threads two turns";
    EXPECT_FALSE(splits(16, 2048, 32));
    const AttentionShape shape{.batch = 1, .length = 512, .heads = 32, .kv_heads = 8, .head_channels = 128};
    EXPECT_EQ(cpu::AttentionTiles::of_queries(shape, 512).count(), 4 * 8);
    EXPECT_EQ(cpu::AttentionTiles::of_keys(shape, 512).count(), 4 * 8);
}

TEST(AttentionTilesTest, AStepOfGenerationHasWorkForManyThreads) {
    const AttentionShape shape{.batch = 1, .length = 1, .heads = 32, .kv_heads = 8, .head_channels = 128};
    EXPECT_EQ(cpu::AttentionTiles::of_keys(shape, 512).count(), 4 * 8) << "scores";
    EXPECT_EQ(cpu::attention_step_tiles(shape, 512, 32).count(), 32) << "values of a head each";
    EXPECT_EQ(cpu::attention_step_tiles(shape, 512, 2).count(), 8) << "enough for two threads";
}

// Every query of every head meets every key that it sees in one tile.
TEST(AttentionTilesTest, EachPairOfQueryAndKeyIsInOneTile) {
    const AttentionShape shape{.batch = 2, .length = 600, .heads = 6, .kv_heads = 2, .head_channels = 4};
    const std::int64_t past = 50, keys = shape.length + past;
    for (const auto& tiles : {cpu::AttentionTiles::of_groups(shape, keys), cpu::AttentionTiles::of_queries(shape, keys),
                              cpu::AttentionTiles::of_keys(shape, keys), cpu::AttentionTiles::of_heads(shape, keys)}) {
        std::vector<std::int64_t> seen(static_cast<std::size_t>(shape.batch * shape.heads * shape.length), 0);
        for (std::int64_t index = 0; index < tiles.count(); ++index) {
            const cpu::AttentionTile tile = tiles.at(index);
            EXPECT_LE(tile.key_count, tiles.keys_max());
            EXPECT_EQ(tile.first_key % cpu::kAttentionPanel, 0);
            for (std::int64_t head = tile.first_head; head < tile.first_head + tile.group; ++head) {
                EXPECT_EQ(head / 3, tile.kv_head);
                for (std::int64_t query = tile.first_query; query < tile.first_query + tile.query_count; ++query) {
                    const std::int64_t end = std::min(past + query + 1, tile.first_key + tile.key_count);
                    seen[static_cast<std::size_t>((tile.sequence * shape.heads + head) * shape.length + query)] +=
                        std::max<std::int64_t>(0, end - tile.first_key);
                }
            }
        }
        for (std::size_t i = 0; i < seen.size(); ++i)
            ASSERT_EQ(seen[i], past + static_cast<std::int64_t>(i) % shape.length + 1);
    }
}

class CachedAttentionTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr AttentionShape kShape{.batch = 2, .length = 45, .heads = 4, .kv_heads = 2, .head_channels = 12};
    static constexpr std::int64_t kWidth = 48, kRows = 2 * 45;

    // The whole output, from steps of 30, 1, 1 and 13 tokens; a control lets the steps begin `late`.
    std::vector<float> out_of_steps(std::int64_t late = 0) const {
        OnDevice<> keys(*backend_, {2 * 50, 24}, 0.0F), values(*backend_, {2 * 50, 24}, 0.0F);
        OnDevice<> out(*backend_, {kRows, kWidth});
        tensor::Arena workspace(backend_->allocate(1 << 20).value());
        std::int64_t past = 0;
        for (const std::int64_t length : {30, 1, 1, 13}) {
            AttentionShape step = kShape;
            step.length = length;
            OnDevice<> part(*backend_, {2 * length, kShape.qkv_columns()}), part_out(*backend_, {2 * length, kWidth});
            for (std::int64_t b = 0; b < 2; ++b) {
                backend_->copy(qkv_.tensor.row_range(b * 45 + past, length), part.tensor.row_range(b * length, length));
            }
            backend_->attention_cached(step, part.tensor, past + (past > 0 ? late : 0), keys.tensor, values.tensor,
                                       part_out.tensor, workspace);
            for (std::int64_t b = 0; b < 2; ++b) {
                backend_->copy(part_out.tensor.row_range(b * length, length),
                               out.tensor.row_range(b * 45 + past, length));
            }
            past += length;
        }
        return out.read();
    }

    const std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam(), 1);
    const OnDevice<> qkv_ = random(*backend_, {kRows, kShape.qkv_columns()}, 1),
                     dout_ = random(*backend_, {kRows, kWidth}, 2);
    const AttentionReference reference_{kShape, qkv_, std::vector<std::int32_t>(kRows, 0), dout_};
};

TEST_P(CachedAttentionTest, StepsAreTheDefinition) {
    EXPECT_LE(relative_l2(out_of_steps(), reference_.out), kOpTolerance);
}

TEST_P(CachedAttentionTest, AKeyOfZerosBetweenTheStepsIsFarOff) {
    EXPECT_GT(relative_l2(out_of_steps(1), reference_.out), 1000 * kOpTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, CachedAttentionTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::kernels
