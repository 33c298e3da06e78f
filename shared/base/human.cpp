#include "shared/base/human.h"

#include <array>
#include <cstdio>

namespace atl {

std::string human_seconds(double seconds) {
    std::array<char, 64> text{};
    const auto whole = static_cast<long>(seconds);
    if (seconds < 60) {
        std::snprintf(text.data(), text.size(), "%.1f s", seconds);
    } else if (whole < 3600) {
        std::snprintf(text.data(), text.size(), "%ld m %02ld s", whole / 60, whole % 60);
    } else {
        std::snprintf(text.data(), text.size(), "%ld h %02ld m", whole / 3600, whole / 60 % 60);
    }
    return text.data();
}

}  // namespace atl
