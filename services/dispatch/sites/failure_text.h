#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace atl::dispatch {

// How much of a log's end is looked at, as mpirun's notices come after the trainer's own words; and shown.
constexpr std::int64_t kStderrBytes = 16 << 10;
constexpr std::size_t kFailureBytesMax = 800;

// Why a batch job failed, from the end of its stderr.log: the lines of atoll-trainer (with the indented ones under
// them), else what is not mpirun's own notices, else everything; never what programs log as information. Whole lines,
// the last ones, at most `bytes_max` bytes; only a single line that is longer is cut, at its end: shorten().
std::string failure_text(std::string_view log_end, std::size_t bytes_max);

}  // namespace atl::dispatch
