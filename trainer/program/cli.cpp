#include "trainer/program/cli.h"

#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>
#include <type_traits>

#include "shared/base/spelling.h"
#include "shared/base/text.h"
#include "shared/log/warn.h"
#include "shared/run_settings/other_words.h"
#include "trainer/comm/launch.h"

namespace atl::program {
namespace {

constexpr const char* kProgram = "atoll-trainer";

template <class T>
Status read_number(const Flag& flag, std::string_view text, T& value, const char* what) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_whole = end == text.data() + text.size();
    if (error == std::errc() && is_whole && std::isfinite(static_cast<double>(value))) return {};
    if (error == std::errc::result_out_of_range && is_whole) {
        const bool is_integer = std::is_integral_v<T>;
        return invalid_argument("--" + flag.name, "'" + std::string(text) + "' is too " +
                                                      (is_integer ? (text.starts_with('-') ? "small" : "large")
                                                                  : "large or too close to 0"));
    }
    return invalid_argument("--" + flag.name, "'" + std::string(text) + "' is not " + what);
}

// Puts a flag's text where it belongs.
struct Store {
    const Flag& flag;
    std::string_view text;

    Status operator()(std::string* value) const { return *value = text, Status{}; }
    Status operator()(std::int64_t* value) const { return read_number(flag, text, *value, "a whole number"); }
    Status operator()(double* value) const { return read_number(flag, text, *value, "a number"); }
    Status operator()(bool* value) const { return *value = true, Status{}; }
    Status operator()(std::filesystem::path* value) const {
        if (flag.required && text.empty()) return invalid_argument("--" + flag.name, "is required");
        return *value = text, Status{};
    }
    Status operator()(std::vector<std::filesystem::path>* list) const {
        std::error_code error;
        if (std::filesystem::exists(text, error))  // one with a comma in its name
            list->emplace_back(text);
        else
            std::ranges::copy(split_list(text), std::back_inserter(*list));
        return {};
    }
    Status operator()(const Flag::Assign& assign) const {
        const Status status = assign(text);
        if (status.ok()) return status;
        Error error = status.error();
        error.field = "--" + flag.name;
        return error;
    }
};

// What --help shows of a flag's value.
struct Describe {
    const Flag& flag;
    CLI::Option& option;

    void operator()(const std::string* value) const { show("TEXT", *value); }
    void operator()(const std::int64_t* value) const { show("INT", *value == 0 ? "" : std::to_string(*value)); }
    void operator()(const double* value) const { show("NUMBER", *value == 0 ? "" : number_text(*value)); }
    void operator()(const bool*) const {}
    void operator()(const std::filesystem::path*) const { show("PATH", ""); }
    void operator()(const std::vector<std::filesystem::path>*) const { show("PATH…", ""); }
    void operator()(const Flag::Assign&) const {
        if (!flag.is_switch) show(flag.kind, flag.fallback);
    }

  private:
    void show(const std::string& kind, const std::string& fallback) const {
        option.type_name(kind)->default_str(fallback);
    }
};

Status parse(CLI::App& app, std::span<const Flag> flags, int argc, char** argv) {
    Status refused;
    for (const Flag& flag : flags) {
        const auto take = [&refused, &flag](const std::string& text) {
            const Status status = std::visit(Store{flag, text}, flag.target);
            if (!status.ok() && refused.ok()) refused = status;
        };
        const bool is_switch = flag.is_switch || std::holds_alternative<bool*>(flag.target);
        const bool is_list = std::holds_alternative<std::vector<std::filesystem::path>*>(flag.target);
        const std::string name = (flag.is_positional ? "" : "--") + flag.name;
        CLI::Option* option = nullptr;
        if (is_switch) {
            option = app.add_flag_callback(name, [take] { take("true"); }, flag.help);
            option->multi_option_policy(CLI::MultiOptionPolicy::Throw);  // as options have it
        } else if (is_list) {  // each of its values has a place: a shell's glob, a flag that comes again
            const auto take_all = [take](const std::vector<std::string>& texts) { std::ranges::for_each(texts, take); };
            option = app.add_option_function<std::vector<std::string>>(name, take_all, flag.help);
        } else {
            option = app.add_option_function<std::string>(name, take, flag.help);
        }
        if (flag.required) option->required();
        option->group(flag.group);
        std::visit(Describe{flag, *option}, flag.target);
    }
    app.parse(argc, argv);  // throws
    return refused;
}

bool is_first_rank() {
    return comm::launcher_rank(comm::process_environment) == 0;
}

void report(Error error, std::span<const Flag> flags) {
    if (error.message.empty()) return;  // another rank says it
    const auto flag = std::ranges::find(flags, error.field, &Flag::name);
    if (flag != flags.end() && !flag->is_positional)
        error.field.insert(0, "--");  // an error tells a flag with its dashes or without
    log::warn(describe(error));
}

// Whether a flag that takes a value stands without one: at the end, or before another flag.
bool lacks_value(const CLI::Option& option, const std::string& word, const char* next) {
    const bool takes_one = option.get_items_expected_min() > 0;
    return takes_one && word.find('=') == std::string::npos &&
           (next == nullptr || std::string_view(next).starts_with("--"));
}

// "INT" of "INT REQUIRED"
std::string value_kind(const CLI::Option& option) {
    return option.get_type_name().substr(0, option.get_type_name().find(' '));
}

// CLI11's words name what was left over, the values of unknown flags as well; ours name the flag.
std::string refusal(const CLI::App& app, int argc, char** argv, const std::string& words) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) known.push_back(option->get_name());
    std::set<std::string> given;
    std::string twice;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const std::string flag = word.substr(0, word.find('='));
        if (!flag.starts_with("--")) continue;
        if (const CLI::Option* option = app.get_option_no_throw(flag); option == nullptr) {
            if (const auto* other = run_settings::find_other_word(flag))
                return flag + " " +
                       our_word(*other, app.get_option_no_throw("--" + std::string(other->option)) != nullptr);
            const std::string meant = did_you_mean(flag, known);
            return "there is no flag " + flag + (meant.empty() ? "; --help lists them" : meant);
        } else if (lacks_value(*option, word, i + 1 < argc ? argv[i + 1] : nullptr)) {
            return flag + " needs a value: " + value_kind(*option);
        } else if (option->get_items_expected_max() <= 1 && !given.insert(flag).second && twice.empty()) {
            twice = flag + " is given twice";
        }
    }
    return twice.empty() ? words : twice;
}

// The status with which the process ends when there is nothing to run, everything being said. The other ranks leave
// what is wrong with the flags to the first one, and end well: a launcher that sees one fail ends all, that one perhaps
// before it spoke.
std::optional<int> end_of_parsing(CLI::App& app, const CommandEntry& entry, std::span<const Flag> flags, int argc,
                                  char** argv) {
    Status status;
    try {
        status = parse(app, flags, argc, argv);
    } catch (const CLI::CallForHelp&) {
        if (is_first_rank()) std::fputs(app.help().c_str(), stdout);
        return 0;
    } catch (const CLI::ParseError& error) {
        status = invalid_argument("", refusal(app, argc, argv, error.what()));
    }
    if (!is_first_rank() && (!status.ok() || entry.is_of_one_process)) return 0;
    if (status.ok()) return std::nullopt;
    report(status.error(), flags);
    return exit_code(status);
}

// The words of a command line, where a flag with _ for - is the flag: "--batch_size".
std::vector<std::string> with_dashes(std::span<char*> words, std::span<const Flag> flags) {
    std::vector<std::string> all(words.begin(), words.end());
    for (std::string& word : all) {
        if (!word.starts_with("--")) continue;
        std::string name = word.substr(2, word.find('=') - 2);
        std::ranges::replace(name, '_', '-');
        if (std::ranges::find(flags, name, &Flag::name) != flags.end()) word.replace(2, name.size(), name);
    }
    return all;
}

int run_command(const CommandEntry& entry, int argc, char** argv) {
    CLI::App app(entry.summary, std::string(kProgram) + " " + entry.name);
    app.footer(std::string("Example:\n  ") + entry.example);
    log::name_command(std::string(kProgram) + " " + entry.name);
    const std::unique_ptr<Command> command = entry.make();
    const std::vector<Flag> flags = command->flags();
    std::vector<std::string> words = with_dashes({argv, static_cast<std::size_t>(argc)}, flags);
    std::vector<char*> texts;
    for (std::string& word : words) texts.push_back(word.data());
    texts.push_back(nullptr);
    if (const auto end = end_of_parsing(app, entry, flags, argc, texts.data())) return *end;
    const Status status = command->run();
    if (!status.ok()) report(status.error(), flags);
    return exit_code(status);
}

void print_overview(std::FILE* to, std::span<const CommandEntry> commands) {
    std::fprintf(to, "%s COMMAND [flags]: trains, evaluates and runs language models\n\n", kProgram);
    for (const CommandEntry& entry : commands) std::fprintf(to, "  %-16s %s\n", entry.name, entry.summary);
    std::fprintf(to, "\n%s COMMAND --help shows a command's flags and an example.\n", kProgram);
}

int run_line(int argc, char** argv, std::span<const CommandEntry> commands) {
    const std::string word = argc > 1 ? argv[1] : "";
    const bool asks_for_help = word == "--help" || word == "-h" || word == "help";
    if (asks_for_help && argc < 3) {
        if (is_first_rank()) print_overview(stdout, commands);
        return 0;
    }
    if (word == "--version") {
        if (is_first_rank()) std::printf("%s %s\n", kProgram, ATOLL_VERSION);
        return 0;
    }
    const std::string name = asks_for_help ? argv[2] : word;
    const auto found = std::ranges::find(commands, name, [](const CommandEntry& entry) { return entry.name; });
    if (found == commands.end()) {
        if (!is_first_rank()) return 0;
        std::vector<std::string> names;
        for (const CommandEntry& entry : commands) names.emplace_back(entry.name);
        if (!name.empty())
            std::fprintf(stderr, "%s: there is no command '%s'%s\n\n", kProgram, name.c_str(),
                         did_you_mean(name, names).c_str());
        print_overview(stderr, commands);
        return 2;
    }
    if (!asks_for_help) return run_command(*found, argc - 1, argv + 1);
    std::string flag = "--help";
    std::array<char*, 2> help = {argv[2], flag.data()};  // "help train" is "train --help"
    return run_command(*found, 2, help.data());
}

// Whether standard output is a pipe that nobody reads.
bool is_reader_gone() {
    pollfd out{STDOUT_FILENO, 0, 0};
    return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

}  // namespace

int run_command_line(int argc, char** argv, std::span<const CommandEntry> commands) {
    const int code = run_line(argc, argv, commands);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    if (is_reader_gone()) return code == 0 ? 128 + SIGPIPE : code;  // as `head` goes when it has seen enough
    std::fprintf(stderr, "%s: standard output could not be written (is its disk full?)\n", kProgram);
    return code == 0 ? 1 : code;
}

}  // namespace atl::program
