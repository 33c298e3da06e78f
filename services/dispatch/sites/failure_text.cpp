#include "services/dispatch/sites/failure_text.h"

#include <algorithm>
#include <vector>

#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

using Lines = std::vector<std::string_view>;

constexpr std::size_t kRuleLength = 70;  // mpirun rules its notices off with 74 dashes

Lines split_lines(std::string_view text) {
    Lines lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        if (end > 0) lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

// "2026-03-01T12:00:00.123Z atoll-trainer info: …": a program's log, which tells no fault.
bool is_info(std::string_view line) {
    const std::string_view named = line.substr(std::min(line.find(' ') + 1, line.size()));
    const std::string_view level = named.substr(std::min(named.find(' ') + 1, named.size()));
    return line.find('T') == 10 && named.starts_with("atoll") &&
           (level.starts_with("info: ") || level.starts_with("debug: "));
}

bool is_rule(std::string_view line) {
    return line.size() >= kRuleLength && line.find_first_not_of('-') == std::string_view::npos;
}

// The lines that stand outside mpirun's rules, or all but the rules themselves.
Lines without_notices(const Lines& lines) {
    Lines outside;
    bool is_inside = false;
    for (const std::string_view line : lines) {
        if (is_rule(line))
            is_inside = !is_inside;
        else if (!is_inside)
            outside.push_back(line);
    }
    if (!outside.empty()) return outside;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(outside), [](auto line) { return !is_rule(line); });
    return outside;
}

Lines trainer_lines(const Lines& lines) {
    Lines own;
    bool is_own = false;
    for (const std::string_view line : lines) {
        is_own = line.starts_with("atoll-trainer ") || (is_own && line.front() == ' ');
        const bool is_new = std::find(own.begin(), own.end(), line) == own.end();  // each rank may say the same
        if (is_own && is_new) own.push_back(line);
    }
    return own;
}

std::string last_that_fit(const Lines& lines, std::size_t bytes_max) {
    std::string text;
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
        if (text.empty())
            text = shorten(*line, bytes_max);
        else if (line->size() + 1 + text.size() <= bytes_max)
            text.insert(0, std::string(*line) + "\n");
        else
            break;
    }
    return text;
}

}  // namespace

std::string failure_text(std::string_view log_end, std::size_t bytes_max) {
    Lines lines = split_lines(log_end);
    std::erase_if(lines, is_info);
    if (const Lines own = trainer_lines(lines); !own.empty()) return last_that_fit(own, bytes_max);
    return last_that_fit(without_notices(lines), bytes_max);
}

}  // namespace atl::dispatch
