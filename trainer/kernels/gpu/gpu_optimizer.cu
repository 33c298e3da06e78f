// The optimizer steps of GpuBackend: an element a thread.

#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/launch.h"
#include "trainer/tensor/philox.h"

namespace atl::kernels::gpu {
namespace {

using tensor::DType;

// Draws for the weights beside those for the moments, which take both halves of a word of the seed's.
constexpr std::uint64_t kOfWeights = 0x9E3779B97F4A7C15;

// Up with the probability that makes the mean exact.
__device__ std::uint16_t round_to_bf16(float value, std::uint32_t random) {
    return static_cast<std::uint16_t>((__builtin_bit_cast(std::uint32_t, value) + (random & 0xffffU)) >> 16);
}

// A range as kernels take it. What is kept in bf16 is rounded stochastically.
struct Range {
    Elements weights, gradients, first, second, stored;
    std::uint64_t seed, step;
    std::int64_t first_element;

    __device__ std::uint32_t draw(std::int64_t i, std::uint64_t key) const {
        const std::int64_t element = first_element + i;
        std::uint32_t words[4];
        tensor::philox(static_cast<std::uint64_t>(element / 4), step, key, words);
        return words[element % 4];
    }
    __device__ void keep_moments(std::int64_t i, float first_moment, float second_moment) const {
        const bool rounds = (!first.empty() && !first.is_wide()) || (!second.empty() && !second.is_wide());
        const std::uint32_t random = rounds ? draw(i, seed) : 0;
        keep(first, i, first_moment, random);
        keep(second, i, second_moment, random >> 16);
    }
    __device__ void keep_weight(std::int64_t i, float weight) const {
        keep(weights, i, weight, weights.is_wide() ? 0 : draw(i, seed ^ kOfWeights));
        if (!stored.empty()) stored.store(i, weight);
    }

  private:
    __device__ static void keep(const Elements& state, std::int64_t i, float value, std::uint32_t random) {
        if (state.empty()) return;
        if (state.is_wide()) {
            state.store(i, value);
        } else {
            state.store_bits(i, round_to_bf16(value, random));
        }
    }
};

struct AdamW {
    Range range;
    float decay, beta1, beta2, step_size, root_bias, epsilon, gradient_scale;
    __device__ void operator()(std::int64_t i) const {
        const float gradient = range.gradients.load(i) * gradient_scale, weight = range.weights.load(i);
        const float m = beta1 * range.first.load(i) + (1.0F - beta1) * gradient;
        const float v = beta2 * range.second.load(i) + (1.0F - beta2) * gradient * gradient;
        const float direction = m / (sqrtf(v) * root_bias + epsilon);
        range.keep_moments(i, m, v);
        range.keep_weight(i, weight - (decay * weight + step_size * direction));
    }
};

struct Sgd {
    Range range;
    float decay, rate, momentum, gradient_scale;
    __device__ void operator()(std::int64_t i) const {
        const float gradient = gradient_scale * range.gradients.load(i), weight = range.weights.load(i);
        const float moved = range.first.empty() ? gradient : momentum * range.first.load(i) + gradient;
        range.keep_moments(i, moved, 0.0F);
        range.keep_weight(i, weight - (decay * weight + rate * moved));
    }
};

Range make_range(const OptimizerRange& range, std::int64_t step) {
    const auto fits = [&](const Tensor& x) {
        return x.empty() || (x.contiguous() && x.element_count() == range.weights.element_count());
    };
    check(fits(range.gradients) && fits(range.first_moments) && fits(range.second_moments) && fits(range.stored),
          "an optimizer step takes ranges of equal length");
    for (const Tensor& state : {range.weights, range.first_moments, range.second_moments}) {
        check(state.empty() || state.dtype() == DType::kF32 || state.dtype() == DType::kBF16,
              "what an optimizer updates is fp32 or bf16");
    }
    return {Elements(range.weights),          Elements(range.gradients), Elements(range.first_moments),
            Elements(range.second_moments),   Elements(range.stored),    range.seed,
            static_cast<std::uint64_t>(step), range.first_element};
}

}  // namespace

void GpuBackend::adamw(const AdamWStep& step, const OptimizerRange& range) {
    check(!range.first_moments.empty() && !range.second_moments.empty(), "AdamW keeps two moments");
    const double steps = static_cast<double>(step.step);
    launch_for_each(
        compute(), range.weights.element_count(),
        AdamW{.range = make_range(range, step.step),
              .decay = step.learning_rate * step.weight_decay,
              .beta1 = step.beta1,
              .beta2 = step.beta2,
              .step_size =
                  static_cast<float>(step.learning_rate / (1.0 - std::pow(static_cast<double>(step.beta1), steps))),
              .root_bias = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(step.beta2), steps))),
              .epsilon = step.epsilon,
              .gradient_scale = step.gradient_scale});
}

void GpuBackend::sgd(const SgdStep& step, const OptimizerRange& range) {
    launch_for_each(compute(), range.weights.element_count(),
                    Sgd{.range = make_range(range, step.step),
                        .decay = step.learning_rate * step.weight_decay,
                        .rate = step.learning_rate,
                        .momentum = step.momentum,
                        .gradient_scale = step.gradient_scale});
}

}  // namespace atl::kernels::gpu
