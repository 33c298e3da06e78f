#pragma once

#include <cstdint>

namespace atl::fault {

// What the file of a program says to the shim in its processes.
struct ShimState {
    std::int64_t clock_offset_s = 0;  // what is added to the time of day
    std::int64_t disk_is_full = 0;    // no file of it can grow
};

}  // namespace atl::fault
