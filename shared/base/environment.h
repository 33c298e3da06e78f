#pragma once

#include <cstdlib>
#include <string>

namespace atl {

// A variable of this process's environment; "" where it is not set.
inline std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

}  // namespace atl
