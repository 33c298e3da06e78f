#include "trainer/optim/optimizer.h"

namespace atl::optim {

int Optimizer::moment_count() const {
    if (kind != OptimizerKind::kSgd) return 2;
    return momentum > 0 ? 1 : 0;
}

void Optimizer::update(kernels::Backend& backend, const tensor::Tensor& scalars, double learning_rate,
                       std::span<const kernels::OptimizerRange> ranges) const {
    const auto f = [](double value) { return static_cast<float>(value); };
    if (kind != OptimizerKind::kSgd) {
        backend.adamw({f(learning_rate), f(beta1), f(beta2), f(epsilon), f(weight_decay)}, scalars, ranges);
    } else {
        backend.sgd({f(learning_rate), f(momentum), f(weight_decay)}, scalars, ranges);
    }
}

}  // namespace atl::optim
