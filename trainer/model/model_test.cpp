#include "trainer/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "trainer/kernels/testing/far_backend.h"
#include "trainer/model/generate.h"
#include "trainer/model/initialize.h"
#include "trainer/model/testing/reference_driver.h"
#include "trainer/model/testing/tiny_config.h"
#include "trainer/tensor/philox.h"

namespace atl::model {
namespace {

ModelConfig tiny(bool tied) {
    ModelConfig config = tiny_config(2);
    config.tie_word_embeddings = tied;
    return config;
}

TEST(ModelTest, GroupsHoldTheirParametersWithoutGaps) {
    const Model model = make_model(tiny(false));
    ASSERT_EQ(model.units.size(), 4U);
    for (const FsdpUnit& unit : model.units) {
        std::int64_t offset = 0;
        for (const Parameter& parameter : unit.parameters) {
            EXPECT_EQ(parameter.offset, offset) << parameter.name;
            offset += parameter.element_count();
        }
        EXPECT_EQ(unit.element_count, offset);
    }
    const std::int64_t layer = 2 * 24 + 24 * 24 + 2 * 12 * 24 + 24 * 24 + 3 * 24 * 40;
    EXPECT_EQ(model.parameter_count(), 2 * 50 * 24 + 24 + 2 * layer);
}

TEST(ModelTest, ATiedEmbeddingIsOneGroupOfTwoBlocks) {
    const Model model = make_model(tiny(true));
    EXPECT_EQ(model.blocks.back()->units(), (std::vector<std::size_t>{3, 0}));
    EXPECT_EQ(model.first_block_of_unit(), (std::vector<std::size_t>{0, 1, 2, 3}));
    EXPECT_EQ(make_model(tiny(false)).parameter_count() - model.parameter_count(), 50 * 24);
}

TEST(InitializeTest, AnySliceHasTheBitsOfTheWhole) {
    const Parameter parameter{.name = "model.layers.0.mlp.up_proj.weight", .shape = {40, 25}, .init_deviation = 0.02F};
    std::vector<float> whole(1000), slice(333), other(1000);
    initialize(parameter, 7, 0, whole);
    for (const std::int64_t begin : {0, 1, 2, 3, 402, 667}) {
        initialize(parameter, 7, begin, slice);
        EXPECT_TRUE(std::equal(slice.begin(), slice.end(), whole.begin() + begin)) << begin;
    }
    initialize(parameter, 8, 0, other);
    EXPECT_NE(other, whole) << "another seed";
    Parameter named = parameter;
    named.name = "model.layers.1.mlp.up_proj.weight";
    initialize(named, 7, 0, other);
    EXPECT_NE(other, whole) << "another parameter";
}

TEST(InitializeTest, ValuesAreNormalWithTheGivenDeviation) {
    const Parameter parameter{.name = "w", .shape = {1000, 1000}, .init_deviation = 0.5F};
    std::vector<float> values(1'000'000);
    initialize(parameter, 1, 0, values);
    double sum = 0, squares = 0, fourth = 0;
    for (const float value : values) {
        const double v = static_cast<double>(value) / 0.5;
        sum += v;
        squares += v * v;
        fourth += v * v * v * v;
    }
    EXPECT_NEAR(sum / 1e6, 0.0, 0.005);
    EXPECT_NEAR(squares / 1e6, 1.0, 0.01);
    EXPECT_NEAR(fourth / 1e6, 3.0, 0.05);
}

TEST(InitializeTest, AnElementIsMadeOfItsWordOfTheBlock) {
    const Parameter parameter{.name = "w", .shape = {8}, .init = Init::kUniform, .init_deviation = 1.0F};
    std::vector<float> values(8);
    initialize(parameter, 7, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint32_t words[4];
        tensor::philox(i / 4, random_stream("w"), 7, words);
        EXPECT_EQ(values[i], static_cast<float>((words[i % 4] + 0.5) * 0x1p-31 - 1.0)) << i;
    }
}

TEST(InitializeTest, NormsBeginAtOne) {
    const Parameter parameter{.name = "n", .shape = {3}, .init = Init::kOnes};
    std::vector<float> values(3);
    initialize(parameter, 1, 0, values);
    EXPECT_EQ(values, (std::vector<float>(3, 1.0F)));
}

class BatchTest : public ::testing::Test {
  protected:
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1).value();
    tensor::Arena arena_{backend_->allocate(1 << 16).value()};
    BatchBuffers buffers_ = BatchBuffers::allocate(arena_, arena_, *backend_, tiny(false), {2, 4});

    std::vector<std::int32_t> ids_ = {1, 2, 3, 4, 5, 6, 7, 8};
    static std::vector<std::int32_t> values(const Tensor& tensor) {
        return {tensor.i32(), tensor.i32() + tensor.element_count()};
    }
};

TEST_F(BatchTest, TargetsAreTheNextTokensLabels) {
    const std::vector<std::int32_t> labels = {1, 2, -100, 4, 5, 6, 7, 8};
    const auto counts =
        buffers_.load(*backend_, {.shape = {2, 4}, .input_ids = ids_, .labels = labels, .segment_ids = {}});
    EXPECT_TRUE(std::ranges::equal(counts.value(), std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(values(buffers_.batch().targets), (std::vector<std::int32_t>{2, -100, 4, -100, 6, 7, 8, -100}));
    EXPECT_EQ(values(buffers_.batch().positions), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST_F(BatchTest, DocumentsStartAnewAndAreNotTargetsOfOneAnother) {
    const std::vector<std::int32_t> segments = {0, 0, 1, 1, 4, 4, 4, 4};
    const auto counts =
        buffers_.load(*backend_, {.shape = {2, 4}, .input_ids = ids_, .labels = {}, .segment_ids = segments});
    EXPECT_TRUE(std::ranges::equal(counts.value(), std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(values(buffers_.batch().targets), (std::vector<std::int32_t>{2, -100, 4, -100, 6, 7, 8, -100}));
    EXPECT_EQ(values(buffers_.batch().positions), (std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 2, 3}));
    EXPECT_EQ(values(buffers_.batch().documents.segment_starts), (std::vector<std::int32_t>{0, 0, 2, 2, 0, 0, 0, 0}));
}

TEST_F(BatchTest, SequencesOfOneDocumentHaveNoStarts) {
    const std::vector<std::int32_t> alike = {1, 1, 1, 1, 4, 4, 4, 4}, packed = {0, 0, 0, 0, 4, 4, 4, 5};
    const auto starts = [&](std::span<const std::int32_t> segments, std::int64_t sequences) {
        const auto count = static_cast<std::size_t>(4 * sequences);
        EXPECT_TRUE(buffers_
                        .load(*backend_, {.shape = {sequences, 4},
                                          .input_ids = std::span(ids_).first(count),
                                          .labels = {},
                                          .segment_ids = segments.empty() ? segments : segments.first(count)})
                        .ok());
        return buffers_.batch().documents.segment_starts;
    };
    EXPECT_FALSE(starts(packed, 2).empty());
    EXPECT_TRUE(starts(alike, 2).empty());
    EXPECT_TRUE(starts({}, 2).empty());
    EXPECT_TRUE(starts(packed, 1).empty()) << "only the second has two";
}

// Where the host reaches a device nobody needs a list.
TEST(DocumentListTest, HasTheDocumentsOfAllSequencesAndAPowerOfTwoOfPlaces) {
    kernels::FarBackend backend(kernels::make_cpu_backend(1).value());
    const BatchShape shape{2, 4};
    tensor::Arena device(backend.allocate(kernels::Space::kDevice, 1 << 16).value()),
        pinned(backend.allocate(kernels::Space::kPinned, 1 << 16).value());
    BatchBuffers buffers = BatchBuffers::allocate(device, pinned, backend, tiny(false), shape);
    const std::vector<std::int32_t> ids(8, 3);
    const auto list = [&](const std::vector<std::int32_t>& segments) {
        EXPECT_TRUE(
            buffers.load(backend, {.shape = shape, .input_ids = ids, .labels = {}, .segment_ids = segments}).ok());
        const kernels::Documents& documents = buffers.batch().documents;
        std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> all;
        if (documents.places() == 0) return all;
        all.first.resize(static_cast<std::size_t>(documents.first_rows.element_count()));
        all.second.resize(static_cast<std::size_t>(documents.places()));
        backend.copy_to_host(documents.first_rows, all.first.data());
        backend.copy_to_host(documents.lengths, all.second.data());
        return all;
    };
    using Values = std::vector<std::int32_t>;
    EXPECT_EQ(list({0, 0, 0, 0, 1, 1, 1, 1}).second, Values{}) << "one document each";
    EXPECT_EQ(list({0, 1, 1, 1, 2, 2, 3, 3}), std::pair(Values{0, 1, 4, 6, 8}, Values{1, 3, 2, 2}));
    EXPECT_EQ(list({0, 0, 0, 0, 1, 1, 2, 2}), std::pair(Values{0, 4, 6, 8, 8}, Values{4, 2, 2, 0}));
    EXPECT_EQ(list({1, 2, 1, 2, 1, 2, 1, 2}), std::pair(Values{0, 1, 2, 3, 4, 5, 6, 7, 8}, Values(8, 1)));
}

TEST(DocumentListTest, ThereIsNoneOfTooManyDocuments) {
    kernels::FarBackend backend(kernels::make_cpu_backend(1).value());
    const BatchShape shape{2, kernels::kDocumentsMax / 2 + 1};
    tensor::Arena device(backend.allocate(kernels::Space::kDevice, 1 << 20).value()),
        pinned(backend.allocate(kernels::Space::kPinned, 1 << 20).value());
    BatchBuffers buffers = BatchBuffers::allocate(device, pinned, backend, tiny(false), shape);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.tokens()), 3), segments(ids);
    for (std::size_t i = 0; i < segments.size(); ++i) segments[i] = static_cast<std::int32_t>(i);
    ASSERT_TRUE(buffers.load(backend, {.shape = shape, .input_ids = ids, .labels = {}, .segment_ids = segments}).ok());
    EXPECT_FALSE(buffers.batch().documents.empty());
    EXPECT_EQ(buffers.batch().documents.places(), 0);
    segments[1] = segments[2] = segments[0];
    ASSERT_TRUE(buffers.load(backend, {.shape = shape, .input_ids = ids, .labels = {}, .segment_ids = segments}).ok());
    EXPECT_EQ(buffers.batch().documents.places(), kernels::kDocumentsMax);
}

TEST_F(BatchTest, TokensAreSortedByIdAndThoseOfOneIdByPlace) {
    const std::vector<std::int32_t> ids = {7, 2, 7, 0, 2, 7, 1, 0};
    ASSERT_TRUE(buffers_.load(*backend_, {.shape = {2, 4}, .input_ids = ids, .labels = {}, .segment_ids = {}}).ok());
    EXPECT_EQ(values(buffers_.batch().by_id), (std::vector<std::int32_t>{3, 7, 6, 1, 4, 0, 2, 5}));
    EXPECT_TRUE(buffers_.batch().by_position.empty()) << "positions are not learned";
}

TEST_F(BatchTest, TokensOutsideTheVocabularyAreNamed) {
    ids_[5] = 50;
    const auto counts = buffers_.load(*backend_, {.shape = {2, 4}, .input_ids = ids_, .labels = {}, .segment_ids = {}});
    ASSERT_FALSE(counts.ok());
    EXPECT_EQ(counts.error().field, "input_ids");
    EXPECT_NE(counts.error().message.find("50"), std::string::npos);
    const std::vector<std::int32_t> labels = {1, 2, 3, 4, 5, -1, 7, 8};
    ids_[5] = 6;
    EXPECT_EQ(buffers_.load(*backend_, {.shape = {2, 4}, .input_ids = ids_, .labels = labels, .segment_ids = {}})
                  .error()
                  .field,
              "labels");
}

TEST_F(BatchTest, FewerSequencesThanTheLargestBatchFit) {
    const auto counts = buffers_.load(
        *backend_, {.shape = {1, 4}, .input_ids = std::span(ids_).first(4), .labels = {}, .segment_ids = {}});
    EXPECT_EQ(counts.value().size(), 1U);
    EXPECT_EQ(buffers_.batch().targets.element_count(), 4);
    EXPECT_FALSE(buffers_.load(*backend_, {.shape = {1, 8}, .input_ids = ids_, .labels = {}, .segment_ids = {}}).ok());
}

ReferenceDriver random_model(const ModelConfig& config, kernels::Backend& backend) {
    ReferenceDriver resident(make_model(config), backend);
    for (const auto& unit : resident.model().units) {
        for (const Parameter& parameter : unit.parameters) {
            Parameter wide = parameter;
            wide.init_deviation = 0.3F;
            initialize(wide, 3, 0, resident.weight(parameter.name));
        }
    }
    return resident;
}

TEST(PackingTest, PackedRowsEqualSeparateOnes) {
    const auto backend = kernels::make_cpu_backend(1).value();
    ReferenceDriver resident = random_model(tiny(true), *backend);
    std::vector<std::int32_t> ids(24), segments(24);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>(i * 13 % 50);
        segments[i] = static_cast<std::int32_t>(i / 8);
    }
    const double separate = resident.train({.shape = {3, 8}, .input_ids = ids, .labels = {}, .segment_ids = {}});
    const auto gradient = resident.gradient("model.embed_tokens.weight");
    const std::vector<float> kept(gradient.begin(), gradient.end());
    const double packed = resident.train({.shape = {1, 24}, .input_ids = ids, .labels = {}, .segment_ids = segments});
    EXPECT_NEAR(packed / separate, 1.0, 1e-6);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) {
        difference += std::pow(static_cast<double>(gradient[i]) - static_cast<double>(kept[i]), 2);
        size += std::pow(static_cast<double>(kept[i]), 2);
    }
    EXPECT_LE(std::sqrt(difference / size), 1e-6);
}

TEST(PackingTest, DocumentsWhoseRotationDependsOnTheirLengthAreRefused) {
    ModelConfig config = tiny(true);
    config.rope = {.kind = RopeKind::kDynamic, .factor = 2.0};
    const auto backend = kernels::make_cpu_backend(1).value();
    const std::vector<std::int32_t> ids(64, 3);
    std::vector<std::int32_t> segments(64, 1);
    const auto load = [&](std::int64_t length) {
        const BatchShape shape{64 / length, length};
        tensor::Arena measured = tensor::Arena::measuring();
        BatchBuffers::allocate(measured, measured, *backend, config, shape);
        tensor::Arena arena(backend->allocate(measured.peak_bytes()).value());
        auto buffers = BatchBuffers::allocate(arena, arena, *backend, config, shape);
        return buffers.load(*backend, {.shape = shape, .input_ids = ids, .labels = {}, .segment_ids = segments}).ok();
    };
    EXPECT_TRUE(load(64));
    segments.back() = 2;
    EXPECT_FALSE(load(64));
    EXPECT_TRUE(load(32));  // within max_position_embeddings the length does not matter
}

TEST(SamplingTest, TheNucleusKeepsTheLikeliestTokens) {
    const std::vector<float> logits = {std::log(0.1F), std::log(0.6F), std::log(0.3F)};
    EXPECT_EQ(sample_token(logits, 0.0, 1.0, 0.99), 1);
    EXPECT_EQ(sample_token(logits, 1.0, 1.0, 0.59), 1);
    EXPECT_EQ(sample_token(logits, 1.0, 1.0, 0.89), 2);
    EXPECT_EQ(sample_token(logits, 1.0, 1.0, 0.91), 0);
    EXPECT_EQ(sample_token(logits, 1.0, 0.8, 0.99), 2) << "the least likely token is outside the nucleus";
    EXPECT_EQ(sample_token(logits, 1.0, 0.5, 0.99), 1);
    EXPECT_EQ(sample_token(logits, 0.1, 1.0, 0.99), 1) << "a low temperature sharpens";
}

class GenerateTest : public ::testing::Test {
  protected:
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1).value();
    ReferenceDriver resident_ = random_model(tiny(false), *backend_);

    std::vector<std::int32_t> run(const GenerateOptions& options) {
        std::vector<std::int32_t> tokens;
        const std::vector<std::int32_t> prompt = {3, 1, 4};
        const auto status = generate(resident_.model(), *backend_, resident_, prompt, options,
                                     [&](std::int32_t token) { return tokens.push_back(token), true; });
        EXPECT_TRUE(status.ok());
        return tokens;
    }
};

TEST_F(GenerateTest, TheSeedDecides) {
    const GenerateOptions options{.tokens_max = 20, .temperature = 2.0, .top_p = 1.0, .seed = 5};
    EXPECT_EQ(run(options), run(options));
    EXPECT_NE(run(options), run({.tokens_max = 20, .temperature = 2.0, .top_p = 1.0, .seed = 6}));
    EXPECT_EQ(run(options).size(), 20U);
}

TEST_F(GenerateTest, WrongPromptsAndTooManyTokensAreRefused) {
    const auto refusal = [&](std::vector<std::int32_t> prompt, std::int64_t tokens_max) {
        return generate(resident_.model(), *backend_, resident_, prompt, {.tokens_max = tokens_max},
                        [](std::int32_t) { return true; })
            .error()
            .field;
    };
    EXPECT_EQ(refusal({}, 4), "prompt");
    EXPECT_EQ(refusal({1, 50}, 4), "prompt");
    EXPECT_EQ(refusal({1, 2}, 31), "max-tokens");
}

}  // namespace
}  // namespace atl::model
