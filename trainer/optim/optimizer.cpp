#include "trainer/optim/optimizer.h"

namespace atl::optim {

int Optimizer::moment_count() const {
    if (kind == OptimizerKind::kAdamW) return 2;
    return momentum > 0 ? 1 : 0;
}

void Optimizer::update(kernels::Backend& backend, const tensor::Tensor& scalars, double learning_rate, bool decay,
                       const kernels::OptimizerRange& range) const {
    const auto f = [](double value) { return static_cast<float>(value); };
    const float this_decay = decay ? f(weight_decay) : 0.0F;
    if (kind == OptimizerKind::kAdamW) {
        backend.adamw({f(learning_rate), f(beta1), f(beta2), f(epsilon), this_decay}, scalars, range);
    } else {
        backend.sgd({f(learning_rate), f(momentum), this_decay}, scalars, range);
    }
}

}  // namespace atl::optim
