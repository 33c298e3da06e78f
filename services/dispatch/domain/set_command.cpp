#include "services/dispatch/domain/set_command.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace atl::dispatch {

std::string shell_word(const std::string& text) {
    const auto is_plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || std::string_view("-_./:=,@%+").find(static_cast<char>(c)) != std::string::npos;
    };
    if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

std::string set_command(const Facility& facility, const std::string& arguments) {
    return "atoll facility set " + facility.name + " " + arguments;
}

std::string set_field_command(const Facility& facility, const std::string& field, const std::string& value) {
    return set_command(facility, "--set " + shell_word(field + "=" + value));
}

}  // namespace atl::dispatch
