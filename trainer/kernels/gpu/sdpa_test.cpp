// Which passes of attention GpuBackend gives to a library, and that nobody sees which. The library is the tests'
// stand-in; what it computes is in attention_format_test.cpp.

#include "trainer/kernels/gpu/sdpa.h"

#include <gtest/gtest.h>

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/testing/sdpa_shim.h"
#include "trainer/kernels/testing/documents.h"
#include "trainer/kernels/testing/kept.h"

namespace atl::kernels::gpu {
namespace {

using tensor::DType;

constexpr AttentionShape kShape{
    .batch = 2, .length = 33, .heads = 4, .kv_heads = 2, .head_channels = 16, .format = DType::kBF16};

class SdpaTest : public ::testing::Test {
  protected:
    SdpaTest() { shim::set_order(1); }
    ~SdpaTest() override {
        shim::set_has_sdpa(true);
        shim::set_has_sdpa_of_documents(true);
        shim::set_sdpa_bytes_of_one_sequence(0);
    }

    struct Passed {
        std::int64_t by_library;  // passes
        std::vector<float> out, gradient;
    };
    enum class Rows { kWhole, kOfDocuments, kOfDocumentsWithoutList };
    // Both passes, in a workspace for a shape that may be larger.
    static Passed attend(Backend& backend, const AttentionShape& shape, Rows kind = Rows::kWhole,
                         const AttentionShape* largest = nullptr) {
        const std::int64_t rows = shape.batch * shape.length, width = shape.heads * shape.head_channels;
        const Kept qkv(backend, shape.format, rows, shape.qkv_columns(), 1), out(backend, shape.format, rows, width, 2),
            out_gradient(backend, shape.format, rows, width, 3),
            gradient(backend, shape.format, rows, shape.qkv_columns(), 4);
        const OnDeviceDocuments listed(backend, two_documents_and_more(shape), shape.length);
        Documents documents;
        if (kind == Rows::kOfDocuments) documents = listed.get();
        if (kind == Rows::kOfDocumentsWithoutList) documents.segment_starts = listed.get().segment_starts;
        const OnDevice<std::byte> kept = attention_kept(backend, shape);
        tensor::Arena workspace(
            backend.allocate(backend.attention_workspace_bytes(largest != nullptr ? *largest : shape)).value());
        const std::int64_t before = shim::sdpa_passes();
        backend.attention_forward(shape, qkv.narrow.tensor, documents, out.narrow.tensor, kept.tensor, workspace);
        backend.attention_backward(shape, qkv.narrow.tensor, documents, out.narrow.tensor, kept.tensor,
                                   out_gradient.narrow.tensor, {}, gradient.narrow.tensor, workspace);
        backend.synchronize();
        return {shim::sdpa_passes() - before, out.read(backend), gradient.read(backend)};
    }
    // Three in the first sequence, of lengths that differ, and two in each other one.
    static std::vector<std::int32_t> two_documents_and_more(const AttentionShape& shape) {
        std::vector<std::int32_t> starts;
        for (std::int64_t b = 0; b < shape.batch; ++b) {
            for (std::int64_t t = 0; t < shape.length; ++t)
                starts.push_back(static_cast<std::int32_t>(t < 5 ? 0 : b == 0 && t >= 6 ? 6 : 5));
        }
        return starts;
    }
    static void expect_near(const Passed& one, const Passed& other) {
        constexpr double kRounding = 0.02;  // a few of bf16's
        EXPECT_LE(relative_l2(one.out, {other.out.begin(), other.out.end()}), kRounding);
        EXPECT_LE(relative_l2(one.gradient, {other.gradient.begin(), other.gradient.end()}), kRounding);
    }
};

TEST_F(SdpaTest, SequencesOfOneDocumentInHalfFormatsAreTheLibrarys) {
    const auto backend = GpuBackend::open(0).value();
    EXPECT_NE(backend->name().find("attention in fp64)"), std::string::npos) << backend->name();
    EXPECT_EQ(backend->warning(), "");
    AttentionShape shape = kShape;
    EXPECT_EQ(attend(*backend, shape).by_library, 2);
    shape.format = DType::kF16;
    EXPECT_EQ(attend(*backend, shape).by_library, 2);
}

TEST_F(SdpaTest, WhatItHasNoKernelForIsByProducts) {
    const auto backend = GpuBackend::open(0).value();
    EXPECT_EQ(attend(*backend, kShape, Rows::kOfDocumentsWithoutList).by_library, 0) << "too many documents";
    for (const std::int64_t channels : {12, 136}) {
        AttentionShape shape = kShape;
        shape.head_channels = channels;
        EXPECT_EQ(attend(*backend, shape).by_library, 0) << channels;
    }
    AttentionShape wide = kShape;
    wide.format = DType::kF32;
    const OnDevice<> qkv = random(*backend, {66, wide.qkv_columns()}, 1), out(*backend, {66, 64});
    const OnDevice<std::byte> kept = attention_kept(*backend, wide);
    tensor::Arena workspace(backend->allocate(backend->attention_workspace_bytes(wide)).value());
    const std::int64_t before = shim::sdpa_passes();
    backend->attention_forward(wide, qkv.tensor, {}, out.tensor, kept.tensor, workspace);
    backend->synchronize();
    EXPECT_EQ(shim::sdpa_passes(), before) << "fp32";
}

TEST_F(SdpaTest, ADeterministicBackendDoesWithoutIt) {
    const auto by_library = GpuBackend::open(0).value();
    const auto backend = GpuBackend::open(0, {.deterministic = true}).value();
    EXPECT_EQ(backend->name().find("attention"), std::string::npos) << backend->name();
    EXPECT_EQ(backend->warning(), "");
    const Passed passed = attend(*backend, kShape);
    EXPECT_EQ(passed.by_library, 0);
    expect_near(passed, attend(*by_library, kShape));
}

TEST_F(SdpaTest, ALibraryThatIsNotHereIsNamedAndProductsTakeItsPlace) {
    const auto by_library = GpuBackend::open(0).value();
    shim::set_has_sdpa(false);
    const auto backend = GpuBackend::open(0).value();
    EXPECT_EQ(backend->name().find("attention"), std::string::npos) << backend->name();
    EXPECT_NE(backend->warning().find("libattention.so is not here; install it"), std::string::npos)
        << backend->warning();
    const Passed passed = attend(*backend, kShape);
    EXPECT_EQ(passed.by_library, 0);
    expect_near(passed, attend(*by_library, kShape));
}

// Each keeps what the other reads.
TEST_F(SdpaTest, APassForWhichThereIsNoRoomIsByProducts) {
    const auto backend = GpuBackend::open(0).value();
    AttentionShape one = kShape;
    one.batch = 1;
    const Passed with_room = attend(*backend, one, Rows::kWhole, &kShape);
    EXPECT_EQ(with_room.by_library, 2);
    shim::set_sdpa_bytes_of_one_sequence(100'000'000);
    const Passed without = attend(*backend, one, Rows::kWhole, &kShape);
    EXPECT_EQ(without.by_library, 1) << "forward";
    EXPECT_EQ(without.out == with_room.out, true);
    expect_near(without, with_room);
}

TEST_F(SdpaTest, ListedDocumentsAreTheLibrarysAndDoNotSeeOneAnother) {
    const auto backend = GpuBackend::open(0).value(), products = GpuBackend::open(0, {.deterministic = true}).value();
    for (const DType format : {DType::kBF16, DType::kF16}) {
        AttentionShape shape = kShape;
        shape.format = format;
        const Passed passed = attend(*backend, shape, Rows::kOfDocuments);
        EXPECT_EQ(passed.by_library, 2);
        expect_near(passed, attend(*products, shape, Rows::kOfDocuments));
        const Passed whole = attend(*backend, shape);
        EXPECT_GT(relative_l2(passed.out, {whole.out.begin(), whole.out.end()}), 0.1) << "a control";
    }
}

// What it keeps of documents products do not read.
TEST_F(SdpaTest, DocumentsTakeOnePathInBothPasses) {
    const auto backend = GpuBackend::open(0).value();
    AttentionShape one = kShape;
    one.batch = 1;
    shim::set_sdpa_bytes_of_one_sequence(100'000'000);
    EXPECT_EQ(attend(*backend, one, Rows::kOfDocuments).by_library, 2) << "in a workspace that has them";
    shim::set_has_sdpa_of_documents(false);
    EXPECT_EQ(attend(*backend, one, Rows::kOfDocuments).by_library, 0);
    EXPECT_EQ(attend(*backend, kShape).by_library, 2);
}

TEST_F(SdpaTest, AWorkspaceHasWhatEitherPathNeeds) {
    AttentionShape shape = kShape;
    shape.batch = 64;
    const auto backend = GpuBackend::open(0).value(), products = GpuBackend::open(0, {.deterministic = true}).value();
    const std::int64_t sums = 4 * shape.batch * shape.length * shape.heads * shape.head_channels;
    EXPECT_GE(backend->attention_workspace_bytes(shape), sums);
    EXPECT_LT(products->attention_workspace_bytes(shape), sums);
    shape.batch = 1;
    EXPECT_EQ(backend->attention_workspace_bytes(shape), products->attention_workspace_bytes(shape));
    EXPECT_EQ(attend(*backend, kShape, Rows::kOfDocumentsWithoutList).by_library, 0) << "and products find theirs";
}

TEST_F(SdpaTest, AGraphHoldsItsPasses) {
    const auto backend = GpuBackend::open(0).value();
    const std::int64_t rows = kShape.batch * kShape.length;
    const Kept qkv(*backend, kShape.format, rows, kShape.qkv_columns(), 1), out(*backend, kShape.format, rows, 64, 2);
    const OnDevice<std::byte> kept = attention_kept(*backend, kShape);
    tensor::Arena workspace(backend->allocate(backend->attention_workspace_bytes(kShape)).value());
    const std::int64_t before = shim::sdpa_passes();
    for (int time = 0; time < 4; ++time) {
        backend->region({1}, [&] {
            backend->attention_forward(kShape, qkv.narrow.tensor, {}, out.narrow.tensor, kept.tensor, workspace);
        });
    }
    backend->synchronize();
    EXPECT_EQ(shim::sdpa_passes() - before, 4);
}

}  // namespace
}  // namespace atl::kernels::gpu
