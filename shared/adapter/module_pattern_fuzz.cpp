// libFuzzer target: any bytes as a regular expression, a NUL and a module's name.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz module_pattern_fuzz && build/fuzz/bin/module_pattern_fuzz -max_total_time=60 -timeout=2 CORPUS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "shared/adapter/module_pattern.h"

// A name that matches whole has a prefix that matches, and asking again gives the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using atl::adapter::ModulePattern;
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t nul = std::min(input.find('\0'), size);
    const std::string_view pattern = input.substr(0, nul), name = input.substr(std::min(nul + 1, size));
    const auto whole = ModulePattern::parse(pattern);
    const auto prefix = ModulePattern::parse(pattern, ModulePattern::Extent::kPrefix);
    if (whole.ok() != prefix.ok()) std::abort();
    if (!whole.ok()) return whole.error().message.empty() ? std::abort(), 0 : 0;
    if (whole->matches(name) && !prefix->matches(name)) std::abort();
    if (whole->matches(name) != whole->matches(name)) std::abort();
    return 0;
}
