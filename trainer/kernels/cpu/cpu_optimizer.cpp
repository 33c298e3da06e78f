// The optimizer steps of CpuBackend.

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/tile.h"
#include "trainer/kernels/cpu/widen.h"
#include "trainer/kernels/operands.h"

namespace atl::kernels::cpu {
namespace {

using tensor::DType;

// Elements of a tile that are updated at a time: what is widened or rounded meanwhile stays in the first-level cache.
constexpr std::int64_t kRun = 1024;

bool is_wide(const Tensor& state) {
    return state.empty() || state.dtype() == DType::kF32;
}

// The state of one run as the kernels take it: where it lies, or a copy in fp32 of what is kept in bf16.
class RunState {
  public:
    RunState(const SimdKernels& simd, const Tensor& state, std::int64_t begin, std::int64_t count)
        : simd_(simd), bits_(is_wide(state) ? nullptr : static_cast<std::uint16_t*>(state.at(begin))) {
        data_ = bits_ == nullptr ? static_cast<float*>(state.at(begin)) : wide_.data();
        if (bits_ != nullptr) widen(DType::kBF16, bits_, 0, count, data_);
    }
    float* data() const { return data_; }
    void round(const std::uint16_t* random, std::int64_t count) const {
        if (bits_ != nullptr) simd_.round_to_bf16(data_, random, bits_, count);
    }

  private:
    const SimdKernels& simd_;
    std::uint16_t* bits_;
    float* data_;
    std::array<float, kRun> wide_;  // NOLINT: filled when it is used
};

}  // namespace

template <class Update>
void CpuBackend::update_runs(const OptimizerRange& range, std::int64_t step, Update update) {
    check_range(range);
    const bool rounds = !is_wide(range.first_moments) || !is_wide(range.second_moments);
    for_ranges(range.weights.element_count(), kTileElements, [&](std::int64_t tile_begin, std::int64_t tile_end) {
        std::array<std::uint16_t, 2 * kRun> random;  // NOLINT: filled when it is used
        for (std::int64_t begin = tile_begin; begin < tile_end; begin += kRun) {
            const std::int64_t count = std::min(kRun, tile_end - begin);
            RunState weights(simd_, range.weights, begin, count);
            RunState first(simd_, range.first_moments, begin, count);
            RunState second(simd_, range.second_moments, begin, count);
            const Tile gradients = Tile::read(range.gradients, begin, count);
            update(weights.data(), gradients.data(), first.data(), second.data(), count);
            if (rounds) {
                simd_.random_halves(range.seed, step, range.first_element + begin, random.data(), random.data() + kRun,
                                    count);
                first.round(random.data(), count);
                second.round(random.data() + kRun, count);
            }
            if (!is_wide(range.weights)) {
                simd_.random_halves(range.seed ^ kOfWeights, step, range.first_element + begin, random.data(),
                                    random.data() + kRun, count);
                weights.round(random.data(), count);
            }
            if (!range.stored.empty()) {
                narrow(weights.data(), range.stored.dtype(), range.stored.data(), begin, count);
            }
        }
    });
}

void CpuBackend::finish_step(const StepRules& rules, const Tensor& scalars) {
    kernels::finish_step(rules, *scalars_of(scalars));
}

void CpuBackend::adamw(const AdamWStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) {
    const StepScalars& now = *scalars_of(scalars);
    if (now.is_update == 0) return;
    const double steps = now.updates;
    AdamWFactors factors = {
        .decay = 0,
        .beta1 = step.beta1,
        .beta2 = step.beta2,
        .step_size = static_cast<float>(step.learning_rate / (1.0 - std::pow(static_cast<double>(step.beta1), steps))),
        .root_bias = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(step.beta2), steps))),
        .epsilon = step.epsilon,
        .gradient_scale = static_cast<float>(now.factor),
    };
    for (const OptimizerRange& range : ranges) {
        check(!range.first_moments.empty() && !range.second_moments.empty(), "AdamW keeps two moments");
        factors.decay = range.decays ? step.learning_rate * step.weight_decay : 0.0F;
        update_runs(range, static_cast<std::int64_t>(steps),
                    [&](float* weights, const float* gradients, float* first, float* second, std::int64_t count) {
                        simd_.adamw(factors, weights, gradients, first, second, count);
                    });
    }
}

void CpuBackend::sgd(const SgdStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) {
    const StepScalars& now = *scalars_of(scalars);
    if (now.is_update == 0) return;
    const float factor = step.uses_factor ? static_cast<float>(now.factor) : 1.0F;
    for (const OptimizerRange& range : ranges) {
        const float decay = range.decays ? step.learning_rate * step.weight_decay : 0.0F;
        update_runs(range, static_cast<std::int64_t>(now.updates),
                    [&](float* weights, const float* gradients, float* momenta, float*, std::int64_t count) {
                        simd_.sgd(decay, step.learning_rate, step.momentum, factor, weights, gradients, momenta, count);
                    });
    }
}

void CpuBackend::nesterov(float momentum, const Tensor& scalars, std::span<const OptimizerRange> ranges) {
    const StepScalars& now = *scalars_of(scalars);
    if (now.is_update == 0) return;
    const float factor = static_cast<float>(now.factor);
    for (const OptimizerRange& range : ranges) {
        check(!range.first_moments.empty(), "nesterov keeps a momentum");
        update_runs(range, static_cast<std::int64_t>(now.updates),
                    [&](float* direction, const float* gradients, float* momenta, float*, std::int64_t count) {
                        simd_.nesterov(momentum, factor, direction, gradients, momenta, count);
                    });
    }
}

}  // namespace atl::kernels::cpu
