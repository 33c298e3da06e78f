#include "trainer/kernels/backend.h"

namespace atl::kernels {

void Backend::matmul_with(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& d,
                          const Epilogue& epilogue) {
    matmul(a, transpose_a, b, transpose_b, d, false);
    if (!epilogue.bias.empty()) return add_bias(d, epilogue.bias, epilogue.addend, d);
    if (!epilogue.addend.empty()) add(epilogue.addend, d, d);
}

void Backend::wait_on_host(Event event, std::string_view of) {
    if (!wait_) return wait_without_limit(event);
    constexpr int kAskedAtOnce = 100;  // most waits of an exchange are short
    const auto next = [&] { return Event{waited_for_ + 1}; };
    const auto is_done = [&] { return has_happened(next()); };
    for (; waited_for_ < event.number; ++waited_for_) {
        int asked = 0;
        while (asked < kAskedAtOnce && !is_done()) ++asked;
        if (asked == kAskedAtOnce) wait_(is_done, next(), of);
    }
}

}  // namespace atl::kernels
