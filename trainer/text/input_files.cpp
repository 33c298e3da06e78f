#include <glob.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>

#include "shared/base/file.h"
#include "trainer/text/byte_source.h"
#include "trainer/text/input_format.h"

namespace atl::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHeadBytes = 64U << 10;

// Hadoop's rule, and the shell's: what begins so are no data (_SUCCESS, .cache).
bool is_hidden(const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with('.') || name.starts_with('_');
}

// A repository's own files beside its data: those that Hugging Face's datasets leaves out, and licences.
bool is_no_data(const fs::path& path) {
    static const std::set<std::string> names = {"config.json", "dataset_info.json", "dataset_infos.json",
                                                "dataset_dict.json", "dummy_data.zip"};
    static const std::set<std::string> stems = {"readme", "license", "licence", "copying", "notice"};
    static const std::set<std::string> ends = {"", ".md", ".txt"};
    std::string name = path.filename().string();
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const fs::path parts(name);
    return names.contains(name) || (stems.contains(parts.stem().string()) && ends.contains(parts.extension().string()));
}

// What nobody has named itself goes to `left_out`.
void drop_no_data(std::vector<fs::path>& files, std::vector<fs::path>& left_out) {
    const auto rest = std::ranges::stable_partition(files, [](const fs::path& path) { return !is_no_data(path); });
    left_out.insert(left_out.end(), rest.begin(), rest.end());
    files.erase(rest.begin(), rest.end());
}

Result<std::vector<fs::path>> files_below(const fs::path& directory, std::vector<fs::path>& left_out) {
    std::vector<fs::path> files;
    std::error_code error;
    auto entry = fs::recursive_directory_iterator(directory, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
        const fs::path& path = entry->path();
        if (is_hidden(path)) {
            entry.disable_recursion_pending();
            continue;
        }
        std::error_code dangling;  // such a link is found not to be there when it is opened
        const bool is_directory = fs::is_directory(path, dangling);
        if (is_directory && fs::is_symlink(path, dangling))
            return invalid_argument("--input", path.string() + " is a link to a directory: name that directory itself");
        if (!is_directory) files.push_back(path);
    }
    if (error) return file_error(directory, "list", error);
    if (files.empty()) return invalid_argument("--input", directory.string() + " is a directory without a file");
    std::ranges::sort(files, {}, &fs::path::native);
    const std::string first = files.front().filename().string();
    drop_no_data(files, left_out);
    if (files.empty())
        return invalid_argument("--input", directory.string() + " is a directory without data: " + first +
                                               " is left out where it is not named itself");
    return files;
}

Result<std::vector<fs::path>> files_of(const fs::path& path, std::vector<fs::path>& left_out) {
    std::error_code error;
    if (fs::is_directory(path, error)) return files_below(path, left_out);
    return std::vector{path};
}

// ".*" is meant for hidden files; glob(3) finds the directory itself and the one above by it too.
bool is_dot_match(const fs::path& path, const fs::path& pattern) {
    const auto [part, wanted] = std::mismatch(
        path.begin(), path.end(), pattern.begin(), pattern.end(),
        [](const fs::path& one, const fs::path& other) { return (one != "." && one != "..") || one == other; });
    return part != path.end() && wanted != pattern.end();
}

void sort_unique(std::vector<fs::path>& paths) {
    std::ranges::sort(paths, {}, &fs::path::native);
    paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
}

// Sorted; none: nothing matches. "**" is "*" here.
std::vector<fs::path> glob_paths(const fs::path& pattern) {
    glob_t found = {};
    const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
    std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    if (code != 0) return {};
    std::erase_if(paths, [&](const fs::path& path) { return is_dot_match(path, pattern); });
    std::ranges::sort(paths, {}, &fs::path::native);
    return paths;
}

// The pattern that matches this path alone.
std::string as_pattern(const fs::path& path) {
    std::string text;
    for (const char c : path.native()) {
        if (std::string_view("*?[\\").find(c) != std::string_view::npos) text += '\\';
        text += c;
    }
    return text;
}

// What `pattern` matches in each of the directories.
std::vector<fs::path> glob_in(const std::vector<fs::path>& directories, const fs::path& pattern) {
    std::vector<fs::path> paths;
    for (const fs::path& directory : directories) {
        const auto more = glob_paths(as_pattern(directory) / pattern);
        paths.insert(paths.end(), more.begin(), more.end());
    }
    sort_unique(paths);
    return paths;
}

// The directories among `paths` (an empty path is the current one) and all below them, as a shell's globstar finds
// them: none whose name begins with ".", and no links.
Result<std::vector<fs::path>> directories_below(const std::vector<fs::path>& paths) {
    std::vector<fs::path> directories;
    for (const fs::path& top : paths) {
        std::error_code error;
        if (!top.empty() && !fs::is_directory(top, error)) continue;
        directories.push_back(top);
        auto entry = fs::recursive_directory_iterator(top.empty() ? "." : top, error);
        for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
            const fs::path path = top.empty() ? entry->path().lexically_normal() : entry->path();
            std::error_code gone;
            if (path.filename().native().starts_with('.')) {
                entry.disable_recursion_pending();
            } else if (entry->symlink_status(gone).type() == fs::file_type::directory) {
                directories.push_back(path);
            }
        }
        if (error) return file_error(top.empty() ? "." : top, "list", error);
    }
    sort_unique(directories);
    return directories;
}

bool has_globstar(const fs::path& pattern) {
    return std::ranges::find(pattern, fs::path("**")) != pattern.end();
}

// The files, but no directories, that a pattern matches in which "**" stands for any number of directories; at the end,
// for all files in these.
Result<std::vector<fs::path>> find_recursively(const fs::path& pattern) {
    std::vector<fs::path> found = {""};
    fs::path between;  // two "**", or before the first and behind the last
    for (const fs::path& part : pattern) {
        if (part != "**") {
            between /= part;
            continue;
        }
        if (!between.empty()) found = glob_in(found, between);
        between.clear();
        ATOLL_TRY(found, directories_below(found));
    }
    found = glob_in(found, between.empty() ? "*" : between);
    std::error_code error;
    std::erase_if(found, [&](const fs::path& path) { return fs::is_directory(path, error); });
    return found;
}

bool has_wildcard(const fs::path& path) {
    return path.native().find_first_of("*?[") != std::string::npos;
}

Result<std::vector<fs::path>> matches_of(const fs::path& pattern, std::vector<fs::path>& left_out) {
    std::vector<fs::path> paths;
    if (has_globstar(pattern)) {
        ATOLL_TRY(paths, find_recursively(pattern));
    } else {
        paths = glob_paths(pattern);
    }
    const std::size_t before = left_out.size();
    if (has_wildcard(pattern.filename()) || !pattern.has_filename()) drop_no_data(paths, left_out);
    if (paths.empty() && left_out.size() > before)
        return invalid_argument("--input", "what matches " + pattern.string() + " lies beside data and is none, as " +
                                               left_out.back().string() + "; name a file itself to have it read");
    if (paths.empty()) return not_found("no file matches " + pattern.string(), "--input");
    std::vector<fs::path> files;
    for (const fs::path& path : paths) {
        ATOLL_TRY(const auto more, files_of(path, left_out));
        files.insert(files.end(), more.begin(), more.end());
    }
    return files;
}

Result<std::vector<fs::path>> expand(const fs::path& given, std::vector<fs::path>& left_out) {
    std::error_code error;
    if (has_wildcard(given) && !fs::exists(given, error)) return matches_of(given, left_out);
    return files_of(given, left_out);
}

// Of what a file holds, decompressed.
Result<std::string> read_head(const fs::path& path) {
    ATOLL_TRY(const auto source, ByteSource::open(path));
    std::string head(kHeadBytes, '\0');
    std::size_t size = 0;
    while (size < head.size()) {
        ATOLL_TRY(const std::size_t got, source->read({head.data() + size, head.size() - size}));
        if (got == 0) break;
        size += got;
    }
    head.resize(size);
    return head;
}

// Each file once, whatever it is called.
Status refuse_twice(const std::vector<fs::path>& paths) {
    std::map<fs::path, const fs::path*> seen;
    for (const fs::path& path : paths) {
        std::error_code error;
        const auto [there, is_new] = seen.emplace(fs::weakly_canonical(path, error), &path);
        if (is_new) continue;
        const std::string other = *there->second == path ? "" : ", the other time as " + there->second->string();
        return invalid_argument("--input", path.string() + " is given twice" + other + ": leave one out");
    }
    return {};
}

}  // namespace

Result<std::vector<InputFile>> open_inputs(const std::vector<fs::path>& given, const InputChoice& choice) {
    std::vector<fs::path> paths, left_out;
    for (const fs::path& path : given) {
        ATOLL_TRY(const auto files, expand(path, left_out));
        paths.insert(paths.end(), files.begin(), files.end());
    }
    ATOLL_RETURN_IF_ERROR(refuse_twice(paths));
    if (choice.on_left_out) choice.on_left_out(left_out);
    std::vector<InputFile> files;
    for (fs::path& path : paths) {
        ATOLL_RETURN_IF_ERROR(check_input(path));
        ATOLL_TRY(const std::string head, read_head(path));
        if (choice.format) {
            ATOLL_RETURN_IF_ERROR(refuse_foreign(path, head));
            files.push_back({std::move(path), *choice.format});
        } else {
            ATOLL_TRY(const InputFormat format, tell_format(path, head, choice.fallback));
            files.push_back({std::move(path), format});
        }
    }
    return files;
}

}  // namespace atl::text
