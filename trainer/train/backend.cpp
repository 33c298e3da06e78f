#include "trainer/train/backend.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <vector>

#include "shared/log/warn.h"
#include "trainer/comm/launch.h"
#include "trainer/kernels/device.h"
#include "trainer/train/threads.h"
#include "trainer/weights/storage.h"

namespace atl::train {
namespace {

// Ranks on different processors have different kernels, of other bits: what --deterministic promises cannot be kept.
Status check_one_kind(const run_settings::RunConfig& config, const kernels::Backend& backend, comm::Comm& comm) {
    constexpr std::size_t kLongest = 128;  // of a name
    std::string mine = backend.name();
    mine.resize(kLongest);
    std::string first = mine;
    comm.broadcast(std::as_writable_bytes(std::span(first)), 0);
    const Status differs = conflict("rank " + std::to_string(comm.rank()) + " computes with " + mine.c_str() +
                                        ", rank 0 with " + first.c_str() +
                                        ", whose sums differ a little: take machines of one kind, or the same "
                                        "ATOLL_INSTRUCTION_SET on all ranks",
                                    "--deterministic");
    const Status seen = comm.agree(first == mine ? Status() : differs);
    if (seen.ok() || config.deterministic) return seen;
    if (!seen.error().message.empty()) log::warn(seen.error().message);
    return {};
}

// Every rank takes part.
Result<kernels::DeviceChoice> choose_gpu(comm::Comm& comm) {
    const auto node = comm.on_node();
    return kernels::choose_device(
        {node->rank(), node->size(), kernels::visible_gpus(), kernels::device_variables(comm::process_environment)});
}

// The GPU of this rank. Every rank takes part.
Result<std::unique_ptr<kernels::Backend>> open_gpu(const run_settings::RunConfig& config, comm::Comm& comm) {
    const std::string device(to_string(config.device));
    const auto choice = choose_gpu(comm);
    if (kernels::visible_gpus() == 0) return kernels::make_gpu_backend(device, 0);  // which says why
    if (!choice.ok()) return choice.error();
    return kernels::make_gpu_backend(device, choice->device, config.deterministic);
}

Result<std::unique_ptr<kernels::Backend>> open_cpu(const run_settings::RunConfig& config, comm::Comm& comm) {
    ATOLL_TRY(const int threads, choose_threads(static_cast<int>(config.threads), comm));
    return kernels::make_cpu_backend(threads, {}, weights::storage_dtype(config.computes_in()));
}

// What a product of squares with that side takes.
struct Squares {
    tensor::Memory memory;
    tensor::Tensor a, b, c;

    static Result<Squares> allocate(kernels::Backend& backend, tensor::DType format, std::int64_t side) {
        ATOLL_TRY(tensor::Memory memory,
                  backend.allocate(3 * tensor::aligned(tensor::size_bytes(format, side * side))));
        std::byte* const place = memory.data();
        Squares squares{.memory = std::move(memory), .a = {}, .b = {}, .c = {}};
        std::int64_t at = 0;
        for (tensor::Tensor* matrix : {&squares.a, &squares.b, &squares.c}) {
            *matrix = tensor::Tensor(place + at, format, {side, side});
            at += tensor::aligned(matrix->byte_count());
        }
        return squares;
    }
    static Result<Squares> allocate_zeros(kernels::Backend& backend, tensor::DType format, std::int64_t side) {
        ATOLL_TRY(Squares squares, allocate(backend, format, side));
        backend.zero(squares.a);
        backend.zero(squares.b);
        return squares;
    }
    // In the ways of forward and backward.
    void multiply(kernels::Backend& backend, int way) const { backend.matmul(a, way == 1, b, way == 2, c, false); }
};

double flops_of_product(std::int64_t side) {
    return 2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr std::int64_t kHostSide = 512;

double host_peak_flops(kernels::Backend& backend, tensor::DType format) {
    constexpr int kPatience = 48;  // products in a row of which none was faster: a core that was busy may be free again
    constexpr double kNoticed = 0.99;
    const auto squares = Squares::allocate_zeros(backend, format, kHostSide);
    if (!squares.ok()) return 0;
    double seconds = 1e30;
    for (int i = 0, best = 0; i - best < kPatience; ++i) {
        const auto start = Clock::now();
        squares->multiply(backend, i % 3);
        backend.synchronize();
        const double taken = seconds_since(start);
        if (taken < kNoticed * seconds) best = i;
        seconds = std::min(seconds, taken);
    }
    return seconds > 0 ? flops_of_product(kHostSide) / seconds : 0;
}

// Values that differ: of zeros a GPU multiplies faster than of what a model has, as it draws less power.
void fill(kernels::Backend& backend, const tensor::Tensor& matrix) {
    constexpr std::int64_t kRows = 64;
    std::mt19937 random(1);
    std::vector<float> values(static_cast<std::size_t>(kRows * matrix.columns()));
    for (float& value : values) value = static_cast<float>(random() % 255) / 128 - 1;
    const tensor::Tensor first = matrix.row_range(0, kRows);
    check(weights::store_values(values, first, backend), "values of at most 1 are in every format");
    for (std::int64_t row = kRows; row < matrix.rows(); row += kRows) backend.copy(first, matrix.row_range(row, kRows));
}

// The seconds of a product, of several that the device has to do without the host: the best of a few times.
double seconds_of_product(kernels::Backend& backend, const Squares& squares) {
    constexpr int kAtOnce = 10, kTimes = 6;
    double seconds = 1e30;
    for (int i = 0; i < kTimes; ++i) {
        squares.multiply(backend, i % 3);  // the first of a kind chooses its kernel
        backend.synchronize();
        const auto start = Clock::now();
        for (int product = 0; product < kAtOnce; ++product) squares.multiply(backend, i % 3);
        backend.synchronize();
        seconds = std::min(seconds, seconds_since(start) / kAtOnce);
    }
    return seconds;
}

double device_peak_flops(kernels::Backend& backend, tensor::DType format) {
    constexpr std::int64_t kSideMin = 1024, kSideMax = 8192;
    constexpr double kLongS = 5e-3;    // what takes so long fills a device
    constexpr double kNoticed = 1.02;  // of the rate
    double best = 0;
    for (std::int64_t side = kSideMin; side <= kSideMax; side *= 2) {
        const auto squares = Squares::allocate(backend, format, side);
        if (!squares.ok()) break;
        fill(backend, squares->a);
        fill(backend, squares->b);
        const double seconds = seconds_of_product(backend, *squares), rate = flops_of_product(side) / seconds;
        const bool is_faster = rate > kNoticed * best;
        best = std::max(best, rate);
        if (!is_faster || seconds > kLongS) break;
    }
    return best;
}

}  // namespace

std::span<const std::string_view> built_devices() {
    static const std::array<std::string_view, 2> built = {"cpu", kernels::gpu_device()};
    return std::span(built).first(kernels::gpu_device().empty() ? 1 : 2);
}

Result<std::unique_ptr<kernels::Backend>> open_backend(const run_settings::RunConfig& config, comm::Comm& comm) {
    const bool is_cpu = config.device == run_settings::Device::kCpu;
    ATOLL_TRY(auto backend, comm::agreed(comm, is_cpu ? open_cpu(config, comm) : open_gpu(config, comm)));
    ATOLL_RETURN_IF_ERROR(check_one_kind(config, *backend, comm));
    if (comm.rank() == 0 && !backend->warning().empty()) log::warn(backend->warning());
    backend->wait_by([&comm](const std::function<bool()>& is_done, kernels::Event, std::string_view of) {
        comm.wait_until(is_done, {of.empty() ? "the work" : of, "its device", "computing"});
    });
    return backend;
}

int ranks_on_gpu_of(comm::Comm& comm) {
    const auto choice = choose_gpu(comm);
    return choice.ok() ? choice->ranks : 1;
}

int ranks_a_gpu(int ranks) {
    const int gpus = std::max(1, kernels::visible_gpus());
    return (ranks + gpus - 1) / gpus;
}

double measure_peak_flops(kernels::Backend& backend, tensor::DType format) {
    return backend.host_reaches_device() ? host_peak_flops(backend, format) : device_peak_flops(backend, format);
}

void warm_up_products(kernels::Backend& backend, tensor::DType format) {
    const auto squares = Squares::allocate_zeros(backend, format, kHostSide);
    if (!squares.ok()) return;
    for (const int way : {0, 1, 2}) squares->multiply(backend, way);
    backend.synchronize();
}

}  // namespace atl::train
