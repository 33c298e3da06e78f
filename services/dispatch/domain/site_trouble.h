#pragma once

#include <cstdint>
#include <string_view>

namespace atl::dispatch {

// Whether a program says that a disk is full, or a quota of bytes or files used up.
inline bool is_out_of_space(std::string_view said) {
    return said.find("No space left on device") != std::string_view::npos ||
           said.find("uota exceeded") != std::string_view::npos;
}

// Whether a container's runtime has ended before it started anything: Apptainer and Singularity exit with 255 then and
// say why, as on a node that mounts no image for an ordinary user.
inline bool is_container_not_started(std::int64_t exit_code, std::string_view said) {
    return exit_code == 255 && said.find("FATAL:") != std::string_view::npos;
}

}  // namespace atl::dispatch
