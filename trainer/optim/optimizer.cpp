#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <string>

namespace atl::optim {

int Optimizer::moment_count() const {
    if (kind == OptimizerKind::kAdamW) return 2;
    return momentum > 0 ? 1 : 0;
}

void Optimizer::update(kernels::Backend& backend, std::int64_t step, double learning_rate, double gradient_scale,
                       bool decay, const kernels::OptimizerRange& range) const {
    const auto f = [](double value) { return static_cast<float>(value); };
    const float this_decay = decay ? f(weight_decay) : 0.0F;
    if (kind == OptimizerKind::kAdamW) {
        backend.adamw({f(learning_rate), f(beta1), f(beta2), f(epsilon), this_decay, step, f(gradient_scale)}, range);
    } else {
        backend.sgd({f(learning_rate), f(momentum), this_decay, f(gradient_scale), step}, range);
    }
}

double clip_factor(double norm, double norm_max) {
    if (norm_max <= 0) return 1;
    return std::min(1.0, norm_max / (norm + 1e-6));
}

}  // namespace atl::optim
