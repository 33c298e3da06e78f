#pragma once

#include <cstdint>

namespace atl::run_settings {

// What `atoll-trainer` exits with, beside 0 and 1 (any other failure). After each of these another attempt would end
// the same way.
constexpr int kExitBadInput = 2;
constexpr int kExitNotEnoughMemory = 3;
constexpr int kExitNotFinite = 4;  // the loss or its gradient is not finite

constexpr bool is_final_exit(std::int64_t code) {
    return code == kExitBadInput || code == kExitNotEnoughMemory || code == kExitNotFinite;
}

}  // namespace atl::run_settings
