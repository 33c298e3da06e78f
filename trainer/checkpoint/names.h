#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Inside trainer/checkpoint only.
namespace atl::checkpoint {

// "[2, 3]"
std::string shape_text(const std::vector<std::int64_t>& shape);

// Whether one of the patterns is the name, or "*suffix" of it.
bool is_ignorable(std::string_view name, std::span<const std::string> patterns);

}  // namespace atl::checkpoint
