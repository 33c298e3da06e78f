#include "trainer/kernels/backend.h"

namespace atl::kernels {

void Backend::wait_on_host(Event event, std::string_view of) {
    if (!wait_) return wait_without_limit(event);
    constexpr int kAskedAtOnce = 100;  // most waits of an exchange are short
    const auto is_done = [&] { return has_happened({waited_for_ + 1}); };
    for (; waited_for_ < event.number; ++waited_for_) {
        int asked = 0;
        while (asked < kAskedAtOnce && !is_done()) ++asked;
        if (asked == kAskedAtOnce) wait_(is_done, of);
    }
}

}  // namespace atl::kernels
