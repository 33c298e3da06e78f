#include "trainer/train/backend.h"

#include <algorithm>
#include <array>
#include <chrono>

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

// The GPU of this rank. Every rank takes part.
Result<std::unique_ptr<kernels::Backend>> open_gpu(const run_settings::RunConfig& config, comm::Comm& comm) {
    const auto node = comm.on_node();
    const std::string device(to_string(config.device));
    if (config.quantize != run_settings::Quantization::kNone)
        return invalid_argument("--quantize", "is not built for GPUs: use --device cpu");
    const kernels::RankDevices rank{node->rank(), node->size(), kernels::visible_gpus(),
                                    kernels::device_variables(comm::process_environment)};
    if (rank.visible == 0) return kernels::make_gpu_backend(device, 0);  // which says why
    ATOLL_TRY(const kernels::DeviceChoice choice, kernels::choose_device(rank));
    return kernels::make_gpu_backend(device, choice.device);
}

Result<std::unique_ptr<kernels::Backend>> open_cpu(const run_settings::RunConfig& config, comm::Comm& comm) {
    const int threads = choose_threads(static_cast<int>(config.threads), comm);
    return kernels::make_cpu_backend(threads, {}, weights::storage_dtype(config.computes_in()));
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
    return backend;
}

double measure_peak_flops(kernels::Backend& backend, tensor::DType format) {
    constexpr std::int64_t kSide = 512;
    constexpr int kPatience = 48;  // products in a row of which none was faster: a core that was busy may be free again
    constexpr double kNoticed = 0.99;
    auto memory = backend.allocate(3 * tensor::size_bytes(format, kSide * kSide));
    if (!memory.ok()) return 0;
    tensor::Arena arena(std::move(memory).value());
    const auto matrix = [&] { return arena.allocate(tensor::Category::kWorkspace, format, {kSide, kSide}); };
    const tensor::Tensor a = matrix();
    const tensor::Tensor b = matrix();
    const tensor::Tensor c = matrix();
    backend.zero(a);
    backend.zero(b);
    double seconds = 1e30;
    for (int i = 0, best = 0; i - best < kPatience; ++i) {
        const auto start = std::chrono::steady_clock::now();
        backend.matmul(a, i % 3 == 1, b, i % 3 == 2, c, false);  // the ways of forward and backward
        backend.synchronize();
        const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (taken < kNoticed * seconds) best = i;
        seconds = std::min(seconds, taken);
    }
    return seconds > 0 ? 2.0 * kSide * kSide * kSide / seconds : 0;
}

}  // namespace atl::train
