#include "shared/base/out_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "shared/base/file.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

Status kept(const fs::path& out, const std::string& why) {
    return conflict(out.string() + " " + why + "; name another directory", "out");
}

bool is_plain_file(const fs::directory_entry& entry) {
    std::error_code error;
    return fs::is_regular_file(entry.symlink_status(error));
}

// Without the empty last part that a trailing slash makes.
fs::path real_path(const fs::path& path) {
    std::error_code error;
    fs::path whole = fs::weakly_canonical(path, error);
    if (error) whole = fs::absolute(path, error).lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();
}

// That `out` can be written into, or made where it is not there.
Status check_rights(const fs::path& out) {
    const fs::path whole = real_path(out);
    fs::path place = whole;
    std::error_code error;
    while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
    if (::faccessat(AT_FDCWD, (place / ".").c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
    Error refused = file_error(out, place == whole ? "write into" : "create");
    refused.field = "out";
    return refused;
}

}  // namespace

bool is_left_over(std::string_view name, const std::function<bool(std::string_view)>& is_name) {
    constexpr std::size_t kSuffix = 7;  // ".XXXXXX" of mkstemp
    if (name.starts_with(".saving")) return true;
    return name.starts_with('.') && name.size() > kSuffix && name[name.size() - kSuffix] == '.' &&
           is_name(name.substr(1, name.size() - 1 - kSuffix));
}

Status check_reads_stay(const fs::path& out, std::span<const fs::path> reads) {
    const fs::path mine = real_path(out);
    for (const fs::path& read : reads) {
        const fs::path other = real_path(read);
        if (std::mismatch(mine.begin(), mine.end(), other.begin(), other.end()).first != mine.end()) continue;
        return invalid_argument(
            "out", out.string() + (mine == other ? " is" : " holds") + " what the command reads, " + read.string());
    }
    return {};
}

Status check_replaceable(const fs::path& out, std::string_view sign,
                         const std::function<bool(std::string_view)>& is_name) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(out, error))) return check_rights(out);
    if (!fs::is_directory(out, error)) return kept(out, "is no directory");
    fs::directory_iterator entries(out, error);
    if (error) return kept(out, "cannot be read (" + error.message() + ")");
    bool empty = true, is_half_done = false;
    for (const fs::directory_entry& entry : entries) {
        const std::string name = entry.path().filename().string();
        if (is_left_over(name, is_name)) {
            is_half_done |= name.starts_with(".saving");
            continue;
        }
        empty = false;
        if (!is_name(name) || !is_plain_file(entry))
            return kept(out, "holds " + name + ", which this command did not make");
    }
    if (empty || is_half_done || fs::exists(out / sign, error)) return check_rights(out);
    return kept(out, "is not empty and has no " + std::string(sign));
}

}  // namespace atl
