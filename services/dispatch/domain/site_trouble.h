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

// The line of a rank of atoll-trainer that waits for the first exchange between the ranks, without the program's name;
// empty: none does. It names the network interfaces and the variable that chooses one.
inline std::string_view rank_that_waits(std::string_view said) {
    const auto word = said.find(" s for the first exchange between the ranks");
    if (word == std::string_view::npos) return {};
    const auto begin = said.rfind("rank ", word);
    const auto line = said.rfind('\n', word);
    if (begin == std::string_view::npos || (line != std::string_view::npos && begin < line)) return {};
    return said.substr(begin, said.find('\n', word) - begin);
}

}  // namespace atl::dispatch
