#pragma once

#include <string>

namespace atl {

// A length of time as people read it: "0.4 s", "3 m 05 s", "2 h 10 m".
std::string human_seconds(double seconds);

}  // namespace atl
