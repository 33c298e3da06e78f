#pragma once

#include <array>
#include <string_view>

namespace atl::run_settings {

// How the files of texts may be written, as atoll-trainer's --input-format takes it (trainer/text/input_format.h);
// `auto`: as each file tells.
inline constexpr std::array<std::string_view, 7> kInputFormats = {"auto", "jsonl", "json", "csv",
                                                                  "tsv",  "text",  "lines"};

}  // namespace atl::run_settings
