#include <algorithm>
#include <array>
#include <utility>

#include "shared/base/spelling.h"
#include "trainer/program/commands.h"

namespace atl::program {
namespace {

// The parts of --help, each with the option of the table that begins it.
constexpr std::array<std::pair<std::string_view, const char*>, 7> kGroups = {
    {{"model", "Files"},
     {"steps", "Rows and steps"},
     {"optimizer", "Optimizer"},
     {"precision", "Precision"},
     {"sharding", "Ranks and memory"},
     {"adapter", "Adapters and loading"},
     {"eval-every", "Validating, saving and stopping"}}};

// An option of which this build has one value alone tells nobody anything.
bool is_shown(const train::Option& option) {
    return option.built.size() != 1;
}

bool is_required(const train::Option& option, train::Commands command) {
    if (option.name == "model") return true;
    if (option.name == "data") return true;
    return option.name == "out" && command == train::kTrain;
}

// "INT", "NUMBER", "TEXT", or "a|b|c" with what this build lacks left out.
std::string kind_of(const train::Option& option) {
    if (option.choices.empty()) {
        if (std::holds_alternative<std::int64_t train::RunConfig::*>(option.member)) return "INT";
        return std::holds_alternative<double train::RunConfig::*>(option.member) ? "NUMBER" : "TEXT";
    }
    std::string kind;
    for (const std::string_view value : option.built.empty() ? option.choices : option.built)
        kind += (kind.empty() ? "" : "|") + std::string(value);
    return kind;
}

// The default as text; empty for 0 and "", which stand for "not given".
std::string default_of(const train::Option& option) {
    const train::RunConfig defaults;
    if (const auto* integer = std::get_if<std::int64_t train::RunConfig::*>(&option.member))
        return defaults.*(*integer) == 0 ? "" : std::to_string(defaults.*(*integer));
    if (const auto* text = std::get_if<std::string train::RunConfig::*>(&option.member)) return defaults.*(*text);
    const auto* number = std::get_if<double train::RunConfig::*>(&option.member);
    if (number == nullptr || defaults.*(*number) == 0) return "";
    return number_text(defaults.*(*number));
}

}  // namespace

std::vector<Flag> ConfigFlags::flags() {
    std::vector<Flag> flags = {{"config", "a JSON object with these flags as keys (with _ for -)", &file_}};
    std::string group;
    for (const train::Option& option : train::options()) {
        const auto begins = std::ranges::find(kGroups, option.name, [](const auto& one) { return one.first; });
        if (begins != kGroups.end()) group = begins->second;
        if ((option.commands & command_) == 0) continue;
        const auto remember = [this, &option](std::string_view text) {
            texts_.emplace_back(&option, text);
            return Status();
        };
        const std::string kind = kind_of(option) + (is_required(option, command_) ? " REQUIRED" : "");
        flags.push_back({std::string(option.name), std::string(option.help), Flag::Assign(remember), false,
                         std::holds_alternative<bool train::RunConfig::*>(option.member), kind, default_of(option),
                         is_shown(option) ? group : ""});
    }
    return flags;
}

Status ConfigFlags::apply() {
    if (!file_.empty()) ATOLL_RETURN_IF_ERROR(train::assign_file(config_, file_, command_));
    for (const auto& [option, text] : texts_) ATOLL_RETURN_IF_ERROR(train::assign(config_, *option, text));
    return train::check_needs(config_, command_);
}

}  // namespace atl::program
