// The optimizer steps of GpuBackend: an element a thread.

#include <cmath>

#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/launch.h"
#include "trainer/kernels/operands.h"
#include "trainer/tensor/philox.h"

namespace atl::kernels::gpu {
namespace {

// Up with the probability that makes the mean exact. NaN stays, which a carry would make a number.
__device__ std::uint16_t round_to_bf16(float value, std::uint32_t random) {
    if (std::isnan(value)) return 0x7fc0;
    return static_cast<std::uint16_t>((__builtin_bit_cast(std::uint32_t, value) + (random & 0xffffU)) >> 16);
}

// A range as kernels take it. What is kept in bf16 is rounded stochastically.
struct Range {
    Elements weights, gradients, first, second, stored;
    std::uint64_t seed;
    std::int64_t first_element;
    const StepScalars* step;

    __device__ float factor() const { return static_cast<float>(step->factor); }
    __device__ std::uint32_t draw(std::int64_t i, std::uint64_t key) const {
        const std::int64_t element = first_element + i;
        std::uint32_t words[4];
        tensor::philox(static_cast<std::uint64_t>(element / 4), static_cast<std::uint64_t>(step->updates), key, words);
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

// The step size and what the root of the second moment is multiplied by, once for all elements.
struct CorrectBias {
    const StepScalars* step;
    float learning_rate, beta1, beta2;
    float* corrections;
    __device__ void operator()(const Block& block) const {
        block.once([&] {
            const double first = 1.0 - pow(static_cast<double>(beta1), step->updates);
            const double second = 1.0 - pow(static_cast<double>(beta2), step->updates);
            corrections[0] = static_cast<float>(static_cast<double>(learning_rate) / first);
            corrections[1] = static_cast<float>(1.0 / sqrt(second));
        });
    }
};

struct AdamW {
    Range range;
    float decay, beta1, beta2, epsilon;
    const float* corrections;
    __device__ void operator()(std::int64_t i) const {
        if (range.step->is_update == 0) return;
        const float step_size = corrections[0], root_bias = corrections[1];
        const float gradient = range.gradients.load(i) * range.factor(), weight = range.weights.load(i);
        const float m = beta1 * range.first.load(i) + (1.0F - beta1) * gradient;
        const float v = beta2 * range.second.load(i) + (1.0F - beta2) * gradient * gradient;
        const float direction = m / (sqrtf(v) * root_bias + epsilon);
        range.keep_moments(i, m, v);
        range.keep_weight(i, weight - (decay * weight + step_size * direction));
    }
};

struct Sgd {
    Range range;
    float decay, rate, momentum;
    __device__ void operator()(std::int64_t i) const {
        if (range.step->is_update == 0) return;
        const float gradient = range.factor() * range.gradients.load(i), weight = range.weights.load(i);
        const float moved = range.first.empty() ? gradient : momentum * range.first.load(i) + gradient;
        range.keep_moments(i, moved, 0.0F);
        range.keep_weight(i, weight - (decay * weight + rate * moved));
    }
};

struct FinishStep {
    StepRules rules;
    StepScalars* scalars;
    __device__ void operator()(const Block& block) const {
        block.once([&] { finish_step(rules, *scalars); });
    }
};

Range make_range(const OptimizerRange& range, const Tensor& scalars) {
    check_range(range);
    return {Elements(range.weights),       Elements(range.gradients),
            Elements(range.first_moments), Elements(range.second_moments),
            Elements(range.stored),        range.seed,
            range.first_element,           scalars_of(scalars)};
}

}  // namespace

void GpuBackend::finish_step(const StepRules& rules, const Tensor& scalars) {
    launch(compute(), 1, FinishStep{rules, scalars_of(scalars)});
}

void GpuBackend::adamw(const AdamWStep& step, const Tensor& scalars, const OptimizerRange& range) {
    check(!range.first_moments.empty() && !range.second_moments.empty(), "AdamW keeps two moments");
    auto* const corrections = reinterpret_cast<float*>(corrections_.data());
    launch(compute(), 1, CorrectBias{scalars_of(scalars), step.learning_rate, step.beta1, step.beta2, corrections});
    launch_for_each(compute(), range.weights.element_count(),
                    AdamW{.range = make_range(range, scalars),
                          .decay = step.learning_rate * step.weight_decay,
                          .beta1 = step.beta1,
                          .beta2 = step.beta2,
                          .epsilon = step.epsilon,
                          .corrections = corrections});
}

void GpuBackend::sgd(const SgdStep& step, const Tensor& scalars, const OptimizerRange& range) {
    launch_for_each(compute(), range.weights.element_count(),
                    Sgd{.range = make_range(range, scalars),
                        .decay = step.learning_rate * step.weight_decay,
                        .rate = step.learning_rate,
                        .momentum = step.momentum});
}

}  // namespace atl::kernels::gpu
