#include "trainer/train/commands.h"

namespace atl::train {
namespace {

// "what it does: a|b|c", with what this build lacks left out.
std::string help_of(const Option& option) {
    std::string help(option.help);
    const auto& values = option.built.empty() ? option.choices : option.built;
    for (std::size_t i = 0; i < values.size() && !option.choices.empty(); ++i) {
        help += (i == 0 ? ": " : "|") + std::string(values[i]);
    }
    if (option.choices.empty() && !option.built.empty()) help += " (not built yet)";
    return help;
}

}  // namespace

std::vector<Flag> ConfigFlags::flags() {
    std::vector<Flag> flags = {{"config", "a JSON object with these flags as keys (with _ for -)", &file_}};
    for (const Option& option : options()) {
        if ((option.commands & command_) == 0) continue;
        const auto remember = [this, &option](std::string_view text) {
            texts_.emplace_back(&option, text);
            return Status();
        };
        flags.push_back({std::string(option.name), help_of(option), Flag::Assign(remember), false,
                         std::holds_alternative<bool RunConfig::*>(option.member)});
    }
    return flags;
}

Status ConfigFlags::apply() {
    if (!file_.empty()) ATOLL_RETURN_IF_ERROR(assign_file(config_, file_, command_));
    for (const auto& [option, text] : texts_) ATOLL_RETURN_IF_ERROR(assign(config_, *option, text));
    return {};
}

}  // namespace atl::train
