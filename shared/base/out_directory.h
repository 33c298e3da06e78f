#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "shared/base/result.h"

// What stands at the place of a command's --out: rules that keep it from replacing what is not its own. Errors name
// the field "out".
namespace atl {

// kInvalidArgument when `out` is one of the files and directories that the command reads, or lies above one of them.
Status check_reads_stay(const std::filesystem::path& out, std::span<const std::filesystem::path> reads);

// kPermissionDenied when `out` can neither be made nor written into, kNotFound when it would lie in a file.
// kConflict when `out` is there and is neither an empty directory nor one that holds `sign` (the file that tells what
// it is) and nothing but files that `is_name` knows: replacing it would lose something of somebody else's. What a
// killed process left while it wrote (".saving…", ".NAME.XXXXXX") does not count, and with ".saving…" the sign may
// lack.
Status check_replaceable(const std::filesystem::path& out, std::string_view sign,
                         const std::function<bool(std::string_view)>& is_name);

// Whether a file's name is that of such a left-over, of a file that `is_name` knows.
bool is_left_over(std::string_view name, const std::function<bool(std::string_view)>& is_name);

}  // namespace atl
