#include "services/dispatch/domain/site_trouble.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kSilenceBytesMax = 300;

bool says_any(std::string_view line, std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](auto word) { return line.find(word) != std::string_view::npos; });
}

// Up to what ends it in a sentence, "there is no 'PATH'", "cannot open PATH: REASON", after a beginning of
// `known` bytes that may hold such a mark itself.
std::string path_at(std::string_view line, std::size_t begin, std::size_t known) {
    std::size_t end = line.find_first_of("'\"", begin + known);
    for (const std::string_view mark : {": ", ", ", " "}) end = std::min(end, line.find(mark, begin + known));
    return std::string(line.substr(begin, end == std::string_view::npos ? end : end - begin));
}

bool is_of_missing_file(std::string_view line) {
    return says_any(line, {"there is no '", "No such file or directory"});
}

// MPI and what else runs beside the trainer name files as well, and go on.
bool is_of_trainer(std::string_view line) {
    return line.starts_with("atoll-trainer ");
}

}  // namespace

bool is_trainer_read_only(std::string_view said) {
    const auto lines = split(said, '\n');
    return std::ranges::any_of(lines, [](auto line) { return is_of_trainer(line) && is_read_only(line); });
}

std::string silence_text(std::string_view said) {
    std::vector<std::string_view> lines;
    const auto all = split(said, '\n');
    for (auto line = all.rbegin(); line != all.rend(); ++line)
        if (!line->empty() && std::ranges::find(lines, *line) == lines.end()) lines.push_back(*line);
    std::string text;
    for (const std::string_view line : lines) text += (text.empty() ? "" : "; ") + std::string(line);
    return shorten(text, kSilenceBytesMax);
}

bool is_munge_away(std::string_view said) {
    return says_any(said, {"unge", "authentication error"});
}

LostFile find_lost_file(std::string_view said, const std::string& directory) {
    for (const std::string_view line : split(said, '\n')) {
        const std::size_t begin = line.find(directory + "/");
        if (!is_of_trainer(line) || begin == std::string_view::npos) continue;
        // ESTALE, ENOTCONN, ESHUTDOWN, EHOSTDOWN, EREMOTEIO and EIO, as NFS, FUSE and Lustre give them.
        const bool is_broken = says_any(line, {"Stale file handle", "Transport endpoint is not connected",
                                               "Cannot send after transport endpoint shutdown", "Host is down",
                                               "Remote I/O error", "Input/output error"});
        if (is_broken || is_of_missing_file(line)) return {path_at(line, begin, directory.size() + 1), is_broken};
    }
    return {};
}

Status input_refusal(std::string_view said, const std::string& work_dir) {
    struct Flag {
        std::string_view name;
        const char* field;
        const char* what;
    };
    constexpr Flag kFlags[] = {{"--input: ", "input", ""},
                               {"--chat-template: ", "input", "the chat template does not fit: "},
                               {"--tokenizer: ", "tokenizer", "cannot be read: "}};
    for (const std::string_view line : split(said, '\n')) {
        if (!is_of_trainer(line)) continue;
        if (is_of_missing_file(line) || says_any(line, {"no file matches"})) {
            // The work directory is the same on all machines; elsewhere a compute node may see what a login node does
            // not.
            const bool is_ours = says_any(line, {work_dir + "/models/", work_dir + "/tasks/"});
            if (is_ours || line.find(work_dir + "/") == std::string_view::npos) continue;
            return invalid_argument("input", std::string(line.substr(line.find(": ") + 2)));
        }
        for (const Flag& flag : kFlags)
            if (const std::size_t at = line.find(flag.name); at != std::string_view::npos)
                return invalid_argument(flag.field, flag.what + std::string(line.substr(at + flag.name.size())));
    }
    return {};
}

}  // namespace atl::dispatch
