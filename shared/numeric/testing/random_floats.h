#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace atl::numeric {

// Finite numbers of any magnitude, the same at every call, to compare the loops of all instruction sets with.
inline std::vector<float> random_floats(std::size_t count) {
    std::mt19937 random(20240607);
    std::vector<float> values(count);
    for (float& value : values) {
        do value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        while (!std::isfinite(value));
    }
    for (std::size_t i = 0; i < values.size(); i += 2) values[i] = std::ldexp(values[i], -std::ilogb(values[i]) % 20);
    return values;
}

}  // namespace atl::numeric
