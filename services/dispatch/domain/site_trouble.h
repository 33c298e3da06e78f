#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/result.h"

namespace atl::dispatch {

// Whether a program says that a disk is full, or a quota of bytes or files used up.
inline bool is_out_of_space(std::string_view said) {
    return said.find("No space left on device") != std::string_view::npos ||
           said.find("uota exceeded") != std::string_view::npos;
}

// Whether a program says that a file system is mounted read-only (EROFS): no right to a directory changes that.
inline bool is_read_only(std::string_view said) {
    return said.find("Read-only file system") != std::string_view::npos;
}
// Whether atoll-trainer itself could not write for that; what else runs in a container may say so and go on.
bool is_trainer_read_only(std::string_view said);
inline constexpr const char* kReadOnlyMend =
    "its file system is mounted read-only, which chmod does not change: ask the site when it can be written to again";

// What a batch system's program has said that got no answer, for people: each line once, the last one first, as that
// one names what failed. Shortened.
std::string silence_text(std::string_view said);
// Whether it is munge, by which Slurm's programs prove who asks, that is away.
bool is_munge_away(std::string_view said);
inline constexpr const char* kMungeMend = "ask the site whether munged runs on its login node";

// What a program did not find, or could not read, below a directory.
struct LostFile {
    std::string path;        // empty: nothing
    bool is_broken = false;  // its file system says that it is away itself: a stale handle, a server that is gone
};

// The first such thing that a line of atoll-trainer's own names. `said`: the end of the standard error.
LostFile find_lost_file(std::string_view said, const std::string& directory);

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

// kInvalidArgument of "input": what the trainer says against the files of an input that are there, their first rows, or
// the chat template for them; of "tokenizer": why it cannot read that. Ok: it says nothing, as of files that a login
// node does not see. A missing file below the work directory counts.
Status input_refusal(std::string_view said, const std::string& work_dir);

}  // namespace atl::dispatch
