#pragma once

#include <array>
#include <cstdint>

namespace atl::fault {

// What the file of a program says to the shim in its processes.
struct ShimState {
    std::int64_t clock_offset_s = 0;            // what is added to the time of day
    std::int64_t disk_is_full = 0;              // no file of it can grow
    std::int64_t cut_off_port = 0;              // of this machine, to which nothing goes and from which nothing comes
    std::array<char, 112> cut_off_socket = {};  // the same of a unix socket's path
};

}  // namespace atl::fault
