#include "trainer/model/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "trainer/tensor/philox.h"

namespace atl::model {
namespace {

using Words = std::uint32_t[4];

// Two independent standard normal values from two words (Box and Muller).
std::array<double, 2> normal_pair(std::uint32_t first, std::uint32_t second) {
    const double radius = std::sqrt(-2.0 * std::log((first + 1.0) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * second * 0x1p-32;
    return {radius * std::cos(angle), radius * std::sin(angle)};
}

std::array<double, 4> normals(const Words& words) {
    const auto low = normal_pair(words[0], words[1]), high = normal_pair(words[2], words[3]);
    return {low[0], low[1], high[0], high[1]};
}

// In (-1, 1).
std::array<double, 4> uniforms(const Words& words) {
    std::array<double, 4> values{};
    for (std::size_t i = 0; i < 4; ++i) values[i] = (words[i] + 0.5) * 0x1p-31 - 1.0;
    return values;
}

}  // namespace

std::uint64_t random_stream(std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char byte : name) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
    return hash;
}

void initialize(const Parameter& parameter, std::uint64_t seed, std::int64_t begin, std::span<float> values) {
    if (parameter.init == Init::kOnes) return std::fill(values.begin(), values.end(), 1.0F);
    if (parameter.init == Init::kZeros) return std::fill(values.begin(), values.end(), 0.0F);
    const std::uint64_t stream = random_stream(parameter.name);
    for (std::size_t at = 0; at < values.size();) {
        const std::uint64_t element = static_cast<std::uint64_t>(begin) + at, block = element / 4;
        Words words;
        tensor::philox(block, stream, seed, words);
        const auto draws = parameter.init == Init::kUniform ? uniforms(words) : normals(words);
        for (std::size_t lane = element % 4; lane < 4 && at < values.size(); ++lane, ++at) {
            values[at] = static_cast<float>(draws[lane] * parameter.init_deviation);
        }
    }
}

}  // namespace atl::model
