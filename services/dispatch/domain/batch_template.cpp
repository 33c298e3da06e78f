#include "services/dispatch/domain/batch_template.h"

#include <algorithm>
#include <optional>
#include <set>

#include "services/dispatch/domain/resources.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kTemplateBytesMax = 64 << 10;
constexpr std::string_view kOptions = "#SBATCH";
constexpr std::string_view kReplaced = "# replaced: ";

// "command" of "{{ command }}"; the text before and behind it stays.
struct Placeholder {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::string name;
};

std::optional<Placeholder> find_placeholder(std::string_view line, std::size_t from) {
    const std::size_t open = line.find("{{", from);
    if (open == std::string_view::npos) return std::nullopt;
    const std::size_t close = std::min(line.find("}}", open), line.size());
    const std::size_t end = std::min(close + 2, line.size());
    const bool is_closed = close < line.size();
    const std::string_view inside = line.substr(open + 2, close - open - 2);
    return Placeholder{open, end, is_closed ? std::string(trim(inside)) : std::string(line.substr(open))};
}

bool has_placeholder(std::string_view line, std::string_view name) {
    for (auto at = find_placeholder(line, 0); at; at = find_placeholder(line, at->end))
        if (at->name == name) return true;
    return false;
}

bool is_command(std::string_view line) {
    return !line.starts_with('#') && (has_placeholder(line, "command") || has_placeholder(line, "streamflow_command"));
}

struct Line {
    std::string text;        // lines that a backslash joins are one
    bool is_head = false;    // before the first command, up to which sbatch reads options
    bool is_option = false;  // one of these
};

bool begins_with_options(std::string_view line) {
    const std::string_view next = line.substr(std::min(line.size(), kOptions.size()), 1);
    return line.starts_with(kOptions) && (next == " " || next == "\t");
}

std::vector<Line> read_template(const std::string& text) {
    std::vector<Line> lines;
    bool is_joined = false;
    bool is_head = true;
    for (const std::string_view line : split(text, '\n')) {
        if (is_joined) {
            lines.back().text += "\n" + std::string(line);
        } else {
            is_head = is_head && (trim(line).empty() || line.starts_with('#'));
            lines.push_back({std::string(line), is_head, is_head && begins_with_options(line)});
        }
        is_joined = line.ends_with('\\') && !line.starts_with('#');
    }
    return lines;
}

// An option of sbatch(1) as a line of the template has it.
struct Option {
    std::string name;   // "--nodes" or "-N"
    std::string text;   // the whole of it
    std::string value;  // empty: it has none
};

std::vector<Option> read_options(const std::string& line) {
    std::vector<Option> options;
    const std::string words = replace_all(line.substr(kOptions.size()), "\t", " ");
    for (const std::string_view word : split(words, ' ')) {
        if (word.empty()) continue;
        if (word.starts_with('#')) break;
        if (!word.starts_with('-') && !options.empty()) {
            options.back().text += " " + std::string(word);
            options.back().value = std::string(word);
            continue;
        }
        const bool is_long = word.starts_with("--");
        const std::size_t end = is_long ? std::min(word.find('='), word.size()) : std::min<std::size_t>(2, word.size());
        std::string_view value = word.substr(end);
        if (value.starts_with('=')) value.remove_prefix(1);
        options.push_back({std::string(word.substr(0, end)), std::string(word), std::string(value)});
    }
    return options;
}

bool is_time(const Option& option) {
    return option.name == "--time" || option.name == "-t";
}

// What dispatch says itself, or what would have it look in other places.
bool is_replaced(const Option& option, bool has_time) {
    static const std::set<std::string> kOurs = {
        "--nodes", "-N", "--ntasks",   "-n", "--ntasks-per-node", "--tasks-per-node", "--output", "-o", "--error", "-e",
        "--chdir", "-D", "--job-name", "-J"};
    return kOurs.contains(option.name) || (has_time && is_time(option));
}

// The line without what is replaced, which stands behind it as a comment.
std::string replace_options(const std::string& line, bool has_time) {
    std::string kept;
    bool is_changed = false;
    for (const Option& option : read_options(line)) {
        if (is_replaced(option, has_time))
            is_changed = true;
        else
            kept += " " + option.text;
    }
    if (!is_changed) return line + "\n";
    return (kept.empty() ? "" : std::string(kOptions) + kept + "\n") + std::string(kReplaced) + line + "\n";
}

std::string commented(const std::string& lines) {
    std::string text;
    for (const std::string_view line : split(lines, '\n')) text += std::string(kReplaced) + std::string(line) + "\n";
    return text;
}

std::string fill_line(const std::string& line, const TemplateValues& values) {
    const std::string exports = values.exports.empty() ? ":" : std::string(trim(values.exports));
    std::string filled;
    std::size_t from = 0;
    for (auto at = find_placeholder(line, 0); at; at = find_placeholder(line, at->end)) {
        filled += line.substr(from, at->begin - from);
        filled += at->name == "streamflow_environment" ? exports : values.work_directory;
        from = at->end;
    }
    return filled + line.substr(from);
}

Status check_placeholders(std::string_view line, const std::string& field) {
    static const std::set<std::string> kFilled = {"command", "streamflow_command", "streamflow_environment",
                                                  "streamflow_workdir"};
    for (auto at = find_placeholder(line, 0); at; at = find_placeholder(line, at->end)) {
        const std::string word(line.substr(at->begin, at->end - at->begin));
        if (!kFilled.contains(at->name))
            return invalid_argument(field, "has " + in_quotes(word) +
                                               ", which nobody fills in: {{ command }}, {{ streamflow_command }}, "
                                               "{{ streamflow_environment }} and {{ streamflow_workdir }} are");
        if (at->name == "command" && trim(line) != word)
            return invalid_argument(field,
                                    "{{ command }} must stand on a line of its own: it becomes many lines, "
                                    "which start the ranks themselves");
    }
    return {};
}

}  // namespace

Status check_template(const std::string& text, const std::string& field) {
    if (text.size() > kTemplateBytesMax)
        return invalid_argument(field, "has more than " + std::to_string(kTemplateBytesMax) + " bytes");
    if (!text.starts_with("#!")) return invalid_argument(field, "must begin with its interpreter, as #!/bin/bash -l");
    if (text.find('\r') != std::string::npos || text.find('\0') != std::string::npos)
        return invalid_argument(field, "has line ends of Windows or NUL bytes");
    int commands = 0;
    for (const Line& line : read_template(text)) {
        ATOLL_RETURN_IF_ERROR(check_placeholders(line.text, field));
        if (is_command(line.text))
            ++commands;
        else if (commands > 0 && !trim(line.text).empty() && !trim(line.text).starts_with('#'))
            return invalid_argument(field, "has " + in_quotes(trim(line.text)) +
                                               " behind {{ command }}, which ends the " +
                                               "script; before it `trap … EXIT` runs what is to come at the end");
    }
    if (commands == 1) return {};
    return invalid_argument(field, "must have one line {{ command }}, has " + std::to_string(commands));
}

std::string fill_template(const std::string& text, const TemplateValues& values) {
    const bool has_time = values.header.find("#SBATCH --time=") != std::string::npos;
    std::string script;
    bool has_header = false;
    for (const auto& [line, is_head, is_option] : read_template(text)) {
        if (!is_head && !has_header) script += values.header;
        has_header = !is_head;
        if (is_option) {
            script += replace_options(line, has_time);
        } else if (is_command(line)) {
            // What `set` there would do to the body is undone.
            const bool is_alone =
                find_placeholder(trim(line), 0)->end == trim(line).size() && trim(line).starts_with("{{");
            script += (is_alone ? "" : commented(line)) + "set +eu\n" + values.body;
        } else {
            script += (line.starts_with('#') ? line : fill_line(line, values)) + "\n";
        }
    }
    while (script.ends_with("\n\n")) script.pop_back();
    return script;
}

std::vector<std::string> replaced_lines(const std::string& text) {
    std::vector<std::string> lines;
    for (const auto& [line, is_head, is_option] : read_template(text)) {
        const auto options = is_option ? read_options(line) : std::vector<Option>();
        const bool is_replaced_option =
            std::any_of(options.begin(), options.end(), [](const Option& option) { return is_replaced(option, true); });
        const bool is_start = is_command(line) && !trim(line).starts_with("{{");
        if (is_replaced_option || is_start) lines.emplace_back(trim(line));
    }
    return lines;
}

std::int64_t template_time_s(const std::string& text) {
    std::int64_t time_s = 0;
    for (const Line& line : read_template(text)) {
        if (!line.is_option) continue;
        for (const Option& option : read_options(line.text))
            if (is_time(option)) time_s = parse_time(option.value, "").ok() ? *parse_time(option.value, "") : time_s;
    }
    return time_s;
}

}  // namespace atl::dispatch
