#include "services/cli/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/spelling.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

std::string full_name(const CLI::App& command) {
    return command.get_parent() == nullptr ? command.get_name()
                                           : full_name(*command.get_parent()) + " " + command.get_name();
}

std::vector<const CLI::App*> subcommands(const CLI::App& command) {
    return command.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> verb_names(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::App* verb : subcommands(command))
        if (!verb->get_group().empty()) names.push_back(verb->get_name());  // none: not for people
    return names;
}

const CLI::App* find_verb(const CLI::App& command, const std::string& word) {
    for (const CLI::App* verb : subcommands(command))
        if (verb->get_name() == word) return verb;
    return nullptr;
}

// The flags that may stand with a command: its own and those of the ones above it.
std::vector<std::string> flag_names(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::App* app = &command; app != nullptr; app = app->get_parent())
        for (const CLI::Option* option : app->get_options())
            for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    return names;
}

const CLI::Option* find_flag(const CLI::App& command, const std::string& flag) {
    for (const CLI::App* app = &command; app != nullptr; app = app->get_parent())
        if (const CLI::Option* option = app->get_option_no_throw(flag)) return option;
    return nullptr;
}

Error usage_error(const CLI::App& command, const std::string& what) {
    return invalid_argument("", what + "\n  `" + full_name(command) + " --help` shows what there is");
}

Error unknown_verb(const CLI::App& command, const std::string& word) {
    const std::vector<std::string> verbs = verb_names(command);
    const std::string meant = did_you_mean(word, verbs);
    return usage_error(command, "`" + full_name(command) + "` has no command " + word +
                                    (meant.empty() ? "; there are " + join(verbs) : meant));
}

// CLI11's "Could not convert: --tail = abc" for people.
std::string plain(const std::string& refusal) {
    constexpr std::string_view kUnfit = "Could not convert: ";
    const auto equals = refusal.find(" = ");
    if (!refusal.starts_with(kUnfit) || equals == std::string::npos) return refusal;
    return refusal.substr(kUnfit.size(), equals - kUnfit.size()) + ": cannot be '" + refusal.substr(equals + 3) + "'";
}

// "--out"; of an argument in its place "DIR, the model directory".
std::string missing(const CLI::App& command, const std::string& name) {
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr || !option->get_positional()) return name;
    std::string upper = name;
    std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
    return upper + ", " + option->get_description();
}

// Of the command and of all below it, without their dashes.
void collect_flags(const CLI::App& command, std::set<std::string>& names) {
    for (const CLI::Option* option : command.get_options())
        names.insert(option->get_lnames().begin(), option->get_lnames().end());
    for (const CLI::App* verb : subcommands(command)) collect_flags(*verb, names);
}

}  // namespace

Result<std::vector<const char*>> with_help_as_flag(const CLI::App& program, std::vector<const char*> words) {
    std::size_t at = 1;
    while (at < words.size() && *words[at] == '-') {
        const CLI::Option* flag = program.get_option_no_throw(words[at]);
        at += flag != nullptr && flag->get_items_expected_max() > 0 ? 2 : 1;
    }
    if (at >= words.size() || std::string_view(words[at]) != "help") return words;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
    const CLI::App* command = &program;
    for (std::size_t i = at; i < words.size(); ++i) {
        if (*words[i] == '-') continue;
        const CLI::App* verb = find_verb(*command, words[i]);
        if (verb == nullptr && subcommands(*command).empty())
            return usage_error(*command, "`" + full_name(*command) + "` has no help on " + words[i]);
        if (verb == nullptr) return unknown_verb(*command, words[i]);
        command = verb;
    }
    words.push_back("--help");
    return words;
}

std::vector<std::string> with_dashes(const CLI::App& program, const std::vector<const char*>& words) {
    std::set<std::string> flags;
    collect_flags(program, flags);
    std::vector<std::string> all(words.begin(), words.end());
    for (std::string& word : all) {
        if (word == "--") break;
        if (!word.starts_with("--")) continue;
        std::string name = word.substr(2, word.find('=') - 2);
        std::ranges::replace(name, '_', '-');
        if (flags.contains(name)) word.replace(2, name.size(), name);
    }
    return all;
}

Error explain_usage(const CLI::App& program, int argc, const char* const* argv, const std::string& refusal) {
    const CLI::App* command = &program;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--") break;
        if (word.starts_with("-") && word.size() > 1) {
            const std::string flag = word.substr(0, word.find('='));
            const CLI::Option* option = find_flag(*command, flag);
            if (option == nullptr)
                return usage_error(*command, "`" + full_name(*command) + "` has no flag " + flag +
                                                 did_you_mean(flag, flag_names(*command)));
            if (flag == word && option->get_expected_min() > 0) ++i;  // its value
        } else if (!verb_names(*command).empty()) {
            const CLI::App* verb = find_verb(*command, word);
            if (verb == nullptr) return unknown_verb(*command, word);
            command = verb;
        }
    }
    if (const auto verbs = verb_names(*command); !verbs.empty())
        return usage_error(*command, "`" + full_name(*command) + "` needs a command: " + join(verbs));
    constexpr std::string_view kMissing = " is required";
    if (refusal.ends_with(kMissing))
        return usage_error(*command, "`" + full_name(*command) + "` needs " +
                                         missing(*command, refusal.substr(0, refusal.size() - kMissing.size())));
    return usage_error(*command, plain(refusal));
}

CLI::Validator web_address() {
    return CLI::Validator(
        [](const std::string& text) {
            const bool is_one =
                text.starts_with("http://") || text.starts_with("https://") || text.starts_with("unix:/");
            return is_one ? std::string() : "'" + text + "' is no address as https://host:port";
        },
        "URL");
}

void set_example(CLI::App& command, const std::string& lines) {
    command.footer("Example:\n  " + lines);
}

}  // namespace atl::cli
