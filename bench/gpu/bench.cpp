#include "bench/gpu/bench.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace atl::bench {
namespace {

constexpr std::int64_t kPiece = 1 << 20;  // elements that are drawn; longer tensors repeat them
constexpr std::size_t kCallsMax = 15;
constexpr double kSeconds = 0.7;  // after which no further call is timed

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

const Shapes& full_shapes() {
    static const Shapes shapes = {.tokens = 4096,
                                  .channels = 4096,
                                  .forward = 11008,
                                  .vocabulary = 32000,
                                  .flat = 1 << 27,
                                  .product = 8192,
                                  .attention_852m = {1, 2048, 32, 8, 64, DType::kBF16},
                                  .attention_7b = {1, 4096, 32, 32, 128, DType::kBF16},
                                  .attention_qwen = {1, 4096, 32, 8, 128, DType::kBF16},
                                  .flushed_bytes = 1 << 28};
    return shapes;
}

const Shapes& small_shapes() {
    static const Shapes shapes = {.tokens = 64,
                                  .channels = 128,
                                  .forward = 352,
                                  .vocabulary = 1000,
                                  .flat = 1 << 16,
                                  .product = 256,
                                  .attention_852m = {1, 64, 4, 4, 16, DType::kBF16},
                                  .attention_7b = {1, 64, 4, 4, 32, DType::kBF16},
                                  .attention_qwen = {1, 64, 8, 2, 32, DType::kBF16},
                                  .flushed_bytes = 1 << 20};
    return shapes;
}

Bench::Bench(kernels::Backend& device, const Shapes& sizes)
    : backend(device), shapes(sizes), flushed_(device.allocate(sizes.flushed_bytes).value()) {}

std::byte* Bench::bytes(std::int64_t count) {
    memory_.push_back(backend.allocate(std::max(count, tensor::kAlignmentBytes)).value());
    return memory_.back().data();
}

Tensor Bench::uninitialised(DType dtype, std::initializer_list<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    return {bytes(tensor::size_bytes(dtype, count)), dtype, shape};
}

Tensor Bench::random(DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor x = uninitialised(dtype, shape), flat = x.reshape({x.element_count()});
    const std::int64_t piece = std::min(x.element_count(), kPiece);
    std::mt19937 engine(static_cast<unsigned>(memory_.size()));
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(piece));
    for (float& value : values) value = normal(engine);
    const Tensor drawn = uninitialised(DType::kF32, {piece});
    backend.copy_from_host(values.data(), drawn);
    for (std::int64_t at = 0; at < x.element_count(); at += piece) {
        const std::int64_t count = std::min(piece, x.element_count() - at);
        const Tensor from(drawn.data(), DType::kF32, {count}), to(flat.at(at), dtype, {count});
        if (dtype == DType::kF32) {
            backend.copy(from, to);
        } else {
            backend.convert(from, to);
        }
    }
    return x;
}

Tensor Bench::integers(std::initializer_list<std::int64_t> shape, std::int64_t bound) {
    const Tensor x = uninitialised(DType::kI32, shape);
    std::mt19937 engine(7);
    std::vector<std::int32_t> values(static_cast<std::size_t>(x.element_count()));
    for (auto& value : values) value = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(bound));
    backend.copy_from_host(values.data(), x);
    return x;
}

void Bench::forget_tensors() {
    backend.synchronize();
    memory_.clear();
}

double Bench::time(const std::function<void()>& call) {
    const double begin = now_s();
    time_once(call);
    std::vector<double> seconds;
    do {
        seconds.push_back(time_once(call));
    } while (seconds.size() < kCallsMax && now_s() - begin < kSeconds);
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
}

double Bench::time_once(const std::function<void()>& call) {
    backend.zero({flushed_.data(), DType::kU8, {flushed_.size_bytes()}});
    const auto begin = backend.record_timed(kernels::Stream::kCompute);
    call();
    const auto end = backend.record_timed(kernels::Stream::kCompute);
    backend.synchronize();
    return end->seconds_since(*begin);
}

}  // namespace atl::bench
