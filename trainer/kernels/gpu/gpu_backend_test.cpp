// GpuBackend's own part: memory, copies, streams, events and errors, against the shim of CUDA's runtime.

#include "trainer/kernels/gpu/gpu_backend.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace atl::kernels::gpu {
namespace {

constexpr std::int64_t kCount = 1000;
constexpr std::int64_t kBytes = kCount * 4;

class GpuBackendTest : public ::testing::TestWithParam<std::uint64_t> {
  protected:
    GpuBackendTest() { shim::set_order(GetParam()); }
    ~GpuBackendTest() override {
        shim::set_device_count(1);
        shim::set_driver_version(13000);
    }

    Tensor tensor(const tensor::Memory& memory) const { return Tensor(memory.data(), tensor::DType::kF32, {kCount}); }
    std::vector<float> on_host(Backend& backend, const Tensor& x) const {
        std::vector<float> values(kCount);
        backend.copy_to_host(x, values.data());
        return values;
    }
};

TEST_P(GpuBackendTest, WhatTheHostCopiesThereComesBack) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(kBytes).value(), other = backend->allocate(kBytes).value();
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const std::vector<float> expected = values;
    backend->copy_from_host(values.data(), tensor(memory));
    values.assign(kCount, -1.0F);  // the host may use it again
    backend->copy(tensor(memory), tensor(other));
    backend->scale(tensor(memory), 2.0F);
    EXPECT_EQ(on_host(*backend, tensor(other)), expected);
    EXPECT_EQ(on_host(*backend, tensor(memory))[7], 14.0F);
    backend->zero(tensor(other));
    EXPECT_EQ(on_host(*backend, tensor(other)), std::vector<float>(kCount, 0.0F));
}

// A chain of transfers and operations, each waiting for the one before by an event alone.
TEST_P(GpuBackendTest, StreamsWaitForEachOthersEvents) {
    const auto backend = GpuBackend::open(0).value();
    const auto device = backend->allocate(kBytes).value();
    const auto pinned = backend->allocate(Space::kPinned, kBytes).value();
    auto* const values = reinterpret_cast<float*>(pinned.data());
    std::fill_n(values, kCount, 1.0F);
    Event before;
    for (int round = 0; round < 20; ++round) {
        backend->wait(Stream::kIn, before);
        backend->transfer(Stream::kIn, tensor(pinned), tensor(device));
        backend->wait(Stream::kCompute, backend->record(Stream::kIn));
        backend->scale(tensor(device), -2.0F);
        backend->wait(Stream::kOut, backend->record(Stream::kCompute));
        backend->transfer(Stream::kOut, tensor(device), tensor(pinned));
        before = backend->record(Stream::kOut);
    }
    backend->wait_on_host(before);
    EXPECT_EQ(values[0], 0x1p20F);
    EXPECT_EQ(values[kCount - 1], 0x1p20F);
}

// x = 2x, as a region. What the body does on the host shows how often it ran.
class DoublingRegion {
  public:
    explicit DoublingRegion(Backend& backend) : backend_(backend) {}
    void ask(std::vector<std::uint64_t> key, const Tensor& x) {
        backend_.region(key, [&] {
            ++bodies;
            backend_.scale(x, 2.0F);
        });
    }
    int bodies = 0;

  private:
    Backend& backend_;
};

TEST_P(GpuBackendTest, ARegionThatComesAgainIsAGraphFromTheSecondTimeOn) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(kBytes).value(), other = backend->allocate(kBytes).value();
    const std::vector<float> ones(kCount, 1.0F);
    backend->copy_from_host(ones.data(), tensor(memory));
    backend->copy_from_host(ones.data(), tensor(other));
    const std::int64_t made = shim::graphs_made(), launched = shim::graph_launches();
    DoublingRegion region(*backend);
    for (int i = 0; i < 5; ++i) region.ask({1}, tensor(memory));
    EXPECT_EQ(on_host(*backend, tensor(memory))[kCount - 1], 32.0F);
    EXPECT_EQ(region.bodies, 2);
    EXPECT_EQ(shim::graphs_made() - made, 1);
    EXPECT_EQ(shim::graph_launches() - launched, 4);
    for (int i = 0; i < 3; ++i) region.ask({2}, tensor(other));  // another key is another region
    EXPECT_EQ(on_host(*backend, tensor(other))[0], 8.0F);
    EXPECT_EQ(on_host(*backend, tensor(memory))[0], 32.0F);
    EXPECT_EQ(region.bodies, 4);
    EXPECT_EQ(shim::graphs_made() - made, 2);
}

TEST_P(GpuBackendTest, WithoutGraphsABodyRunsEachTime) {
    const auto backend = GpuBackend::open(0, {.graphs = false}).value();
    const auto memory = backend->allocate(kBytes).value();
    backend->zero(tensor(memory));
    const std::int64_t made = shim::graphs_made();
    DoublingRegion region(*backend);
    for (int i = 0; i < 5; ++i) region.ask({1}, tensor(memory));
    EXPECT_EQ(region.bodies, 5);
    EXPECT_EQ(shim::graphs_made(), made);
}

// A model's keys name each step's number of targets, which may be new each time.
TEST_P(GpuBackendTest, KeysThatNeverComeAgainTakeNoGraphsAndDoNotPileUp) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(kBytes).value();
    backend->zero(tensor(memory));
    const std::int64_t made = shim::graphs_made();
    DoublingRegion region(*backend);
    region.ask({0}, tensor(memory));
    region.ask({0}, tensor(memory));
    for (std::uint64_t key = 1; key < 5000; ++key) region.ask({key}, tensor(memory));
    EXPECT_EQ(shim::graphs_made() - made, 1);
    EXPECT_EQ(region.bodies, 5001);
    region.ask({0}, tensor(memory));
    EXPECT_EQ(region.bodies, 5001) << "a graph stays";
    region.ask({4999}, tensor(memory));
    EXPECT_EQ(shim::graphs_made() - made, 2) << "it was seen a short while ago";
    region.ask({1}, tensor(memory));
    EXPECT_EQ(shim::graphs_made() - made, 2) << "it was forgotten";
}

TEST_P(GpuBackendTest, ARegionThatAsksForMoreThanOperationsEndsTheProgram) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(kBytes).value();
    float value = 0;
    const std::vector<std::pair<const char*, std::function<void()>>> cases = {
        {"a region asks for memory", [&] { EXPECT_FALSE(backend->allocate(8).ok()); }},
        {"a region asks for an event", [&] { backend->record(Stream::kCompute); }},
        {"a region asks for an event", [&] { backend->synchronize(); }},
        {"a region asks for an event",
         [&] { backend->copy_to_host(Tensor(memory.data(), tensor::DType::kF32, {1}), &value); }},
        {"a region asks for a wait", [&] { backend->wait(Stream::kCompute, {}); }},
        {"a region asks for a region", [&] { backend->region({7}, [] {}); }},
    };
    for (const auto& [message, body] : cases) EXPECT_DEATH(backend->region({1}, body), message);
}

TEST_P(GpuBackendTest, AGraphThatCannotBeRecordedSaysWhatDoesWithout) {
    const auto backend = GpuBackend::open(0).value();
    backend->region({1}, [] {});
    shim::fail_next("cudaStreamEndCapture", cudaErrorInvalidResourceHandle);
    EXPECT_DEATH(backend->region({1}, [] {}), "ATOLL_GPU_GRAPHS=off");
    shim::fail_next("cudaStreamEndCapture", cudaSuccess);
}

TEST_P(GpuBackendTest, AnEventOfLongAgoHasHappened) {
    const auto backend = GpuBackend::open(0).value();
    const Event first = backend->record(Stream::kOut);
    for (int i = 0; i < 10; ++i) {
        backend->synchronize();
        backend->record(Stream::kIn);
    }
    backend->wait_on_host(first);
    backend->wait(Stream::kCompute, first);
    backend->wait_on_host({});
    backend->synchronize();
}

TEST_P(GpuBackendTest, OperationsReachPinnedMemory) {
    const auto backend = GpuBackend::open(0).value();
    const auto pinned = backend->allocate(Space::kPinned, kBytes).value();
    auto* const values = reinterpret_cast<float*>(pinned.data());
    std::fill_n(values, kCount, 3.0F);
    backend->scale(tensor(pinned), 2.0F);
    const auto sum = backend->allocate(Space::kPinned, 8).value();
    backend->sum(tensor(pinned), Tensor(sum.data(), tensor::DType::kF64, {1}), false);
    backend->synchronize();
    EXPECT_EQ(*reinterpret_cast<double*>(sum.data()), 6.0 * kCount);
    EXPECT_EQ(values[5], 6.0F);
}

TEST_P(GpuBackendTest, AProductIsDescribedToTheLibraryOnce) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(3 * kBytes).value();
    const Tensor all(memory.data(), tensor::DType::kF32, {3 * kCount});
    backend->zero(all);
    const auto multiply = [&](std::int64_t first, std::int64_t columns) {
        const std::int64_t before = shim::product_descriptions();
        const auto matrix = [&](std::int64_t number) {
            return Tensor(all.at(first + number * kCount), tensor::DType::kF32, {8, 16}).column_range(0, columns);
        };
        backend->matmul(matrix(0), false, matrix(1), true, Tensor(all.at(2 * kCount), tensor::DType::kF32, {8, 8}),
                        false);
        return shim::product_descriptions() - before;
    };
    EXPECT_EQ(multiply(0, 16), 1);
    EXPECT_EQ(multiply(0, 16), 0);
    EXPECT_EQ(multiply(64, 16), 0) << "as aligned, elsewhere";
    EXPECT_EQ(multiply(0, 8), 1) << "as many rows, another sum";
    EXPECT_EQ(multiply(1, 8), 1) << "less aligned";
}

// 1 + 2^-8 is 1 in bf16, and that and 2^-8 are 1 again; all at once they are 1 + 2^-7.
TEST_P(GpuBackendTest, ABiasAndAnAddendAreRoundedWithTheirProductAtOnce) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(8 * tensor::kAlignmentBytes).value();
    const auto matrix = [&](int number, std::vector<std::uint16_t> bits) {
        Tensor made(memory.data() + number * tensor::kAlignmentBytes, tensor::DType::kBF16,
                    {1, static_cast<std::int64_t>(bits.size())});
        backend->copy_from_host(bits.data(), made);
        return made;
    };
    constexpr std::uint16_t kOne = 0x3F80, kSmall = 0x3B80;  // 2^-8
    const Tensor a = matrix(0, {kOne, kOne}), b = matrix(1, {kOne, kSmall}), small = matrix(2, {kSmall});
    const Tensor d = matrix(3, {0});
    for (const Epilogue& epilogue : {Epilogue{small.reshape({1}), {}}, Epilogue{{}, small}}) {
        backend->matmul_with(a, false, b, true, d, epilogue);
        std::uint16_t bits = 0;
        backend->copy_to_host(d, &bits);
        EXPECT_EQ(bits, kOne + 1);
    }
}

TEST_P(GpuBackendTest, WhatItKeepsForItselfIsThereFromTheStart) {
    const std::int64_t before = shim::device_bytes();
    const auto backend = GpuBackend::open(0).value();
    EXPECT_EQ(shim::device_bytes() - before, backend->own_bytes());
    const auto memory = backend->allocate(kBytes).value();
    EXPECT_EQ(shim::device_bytes() - before, backend->own_bytes() + kBytes) << "what is asked for is not its own";
}

TEST_P(GpuBackendTest, NoMemoryIsAnErrorThatSaysHowMuchWasAskedFor) {
    const auto backend = GpuBackend::open(0).value();
    for (const auto& [space, call] : {std::pair(Space::kDevice, "cudaMalloc"), {Space::kPinned, "cudaHostAlloc"}}) {
        shim::fail_next(call, cudaErrorMemoryAllocation);
        const auto memory = backend->allocate(space, 12345);
        ASSERT_FALSE(memory.ok()) << call;
        EXPECT_EQ(memory.error().code, ErrorCode::kResourceExhausted);
        EXPECT_NE(memory.error().message.find("12345 bytes"), std::string::npos) << memory.error().message;
        EXPECT_TRUE(backend->allocate(space, 12345).ok()) << "the device goes on";
    }
}

TEST_P(GpuBackendTest, AGpuThatIsNotThereIsRefused) {
    EXPECT_EQ(GpuBackend::open(1).error().field, "device");
    EXPECT_EQ(GpuBackend::open(-1).error().field, "device");
    shim::set_device_count(0);
    const Error none = GpuBackend::open(0).error();
    EXPECT_EQ(none.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(none.message.find("no CUDA-capable device"), std::string::npos) << none.message;
    shim::set_driver_version(0);
    const std::string no_driver = GpuBackend::open(0).error().message;
    EXPECT_TRUE(no_driver.starts_with("no driver of a GPU is found here")) << no_driver;
    ASSERT_EQ(::setenv("APPTAINER_CONTAINER", "/trainer.sif", 1), 0);
    const std::string in_container = GpuBackend::open(0).error().message;
    ::unsetenv("APPTAINER_CONTAINER");
    EXPECT_NE(in_container.find("no driver of a GPU is found here; this is a container: "), std::string::npos)
        << in_container;
    EXPECT_NE(in_container.find("`apptainer run --nv`"), std::string::npos) << in_container;
}

TEST_P(GpuBackendTest, ACardIsDescribedWithItsPlace) {
    EXPECT_TRUE(describe_card(0).starts_with("shim, sm_01, ")) << describe_card(0);
    EXPECT_NE(describe_card(0).find(GpuBackend::open(0).value()->card()), std::string::npos) << describe_card(0);
    EXPECT_EQ(describe_card(1), "") << "there is one";
}

TEST_P(GpuBackendTest, AGpuThatDoesNotStartIsAnError) {
    for (const char* call : {"cudaSetDevice", "cudaStreamCreateWithFlags"}) {
        shim::fail_next(call, cudaErrorMemoryAllocation);
        EXPECT_EQ(GpuBackend::open(0).error().code, ErrorCode::kUnavailable) << call;
    }
    shim::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    EXPECT_EQ(GpuBackend::open(0).error().code, ErrorCode::kResourceExhausted);
}

TEST_P(GpuBackendTest, AKernelThatDoesNotStartEndsTheProgramWithTheReason) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(kBytes).value();
    shim::fail_next("launch", cudaErrorInvalidDevice);
    EXPECT_DEATH(backend->scale(tensor(memory), 1.0F), "the launch of a kernel: invalid device ordinal");
}

TEST_P(GpuBackendTest, AQuantisedMatrixHasToBeDequantisedFirst) {
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(kBytes).value();
    const Tensor x(memory.data(), tensor::DType::kF32, {10, 10});
    const Tensor weight(memory.data(), tensor::DType::kInt8, {10, 10});
    EXPECT_DEATH(backend->matmul(x, false, weight, true, x, false), "the GPU multiplies dequantised matrices");
}

INSTANTIATE_TEST_SUITE_P(Orders, GpuBackendTest, ::testing::Values(1, 2, 3, 4));

// The host faults where it touches the device's memory: what the other tests show does not rest on memory in common.
TEST(CudaShimTest, TheHostDoesNotReachDeviceMemory) {
    shim::set_order(1);
    const auto backend = GpuBackend::open(0).value();
    const auto memory = backend->allocate(kBytes).value();
    EXPECT_DEATH(static_cast<volatile float*>(static_cast<void*>(memory.data()))[0] = 1.0F, "");
}

// A control of StreamsWaitForEachOthersEvents: without the events some order gives something else.
TEST(CudaShimTest, AMissingWaitShows) {
    bool differed = false;
    for (std::uint64_t order = 1; order <= 20; ++order) {
        shim::set_order(order);
        const auto backend = GpuBackend::open(0).value();
        const auto memory = backend->allocate(kBytes).value(),
                   pinned = backend->allocate(Space::kPinned, kBytes).value();
        auto* const values = reinterpret_cast<float*>(pinned.data());
        std::fill_n(values, kCount, 1.0F);
        const Tensor there(memory.data(), tensor::DType::kF32, {kCount}), here(values, tensor::DType::kF32, {kCount});
        backend->transfer(Stream::kIn, here, there);
        backend->scale(there, 2.0F);
        backend->synchronize();
        backend->transfer(Stream::kOut, there, here);
        backend->synchronize();
        differed = differed || values[0] != 2.0F;
    }
    EXPECT_TRUE(differed);
}

}  // namespace
}  // namespace atl::kernels::gpu
