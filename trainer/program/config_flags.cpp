#include <algorithm>
#include <array>
#include <utility>

#include "shared/base/text.h"
#include "trainer/program/commands.h"
#include "trainer/train/backend.h"

namespace atl::program {
namespace {

// The parts of --help, each with the option of the table that begins it.
constexpr std::array<std::pair<std::string_view, const char*>, 9> kGroups = {
    {{"model", "Files"},
     {"steps", "Rows and steps"},
     {"optimizer", "Optimizer"},
     {"precision", "Precision"},
     {"sharding", "Ranks and memory"},
     {"adapter", "Adapters and loading"},
     {"eval-every", "Validating, saving and stopping"},
     {"prompt", "Generating"},
     {"ranks", "Planning"}}};

// "INT", "NUMBER", "TEXT", or "a|b|c".
std::string value_kind(const run_settings::Option& option) {
    if (std::holds_alternative<std::int64_t run_settings::RunConfig::*>(option.member)) return "INT";
    if (std::holds_alternative<double run_settings::RunConfig::*>(option.member)) return "NUMBER";
    if (std::holds_alternative<run_settings::Interval run_settings::RunConfig::*>(option.member)) return "N|epoch";
    const auto words = run_settings::words(option);
    return words.empty() ? "TEXT" : join(words, "|");
}

}  // namespace

std::vector<Flag> ConfigFlags::flags() {
    std::vector<Flag> flags = {{"config", "a JSON object with these flags as keys (with _ for -)", &file_}};
    std::string group;
    for (const run_settings::Option& option : run_settings::options()) {
        const auto begins = std::ranges::find(kGroups, option.name, [](const auto& one) { return one.first; });
        if (begins != kGroups.end()) group = begins->second;
        if ((option.commands & command_) == 0) continue;
        const auto remember = [this, &option](std::string_view text) {
            texts_.emplace_back(&option, text);
            return Status();
        };
        const bool is_required = option.name == "model" || option.name == "data" || option.name == "prompt" ||
                                 (option.name == "out" && command_ == run_settings::kTrain);
        std::string default_text = run_settings::value_text({}, option);
        if (default_text == "0" || default_text == "false") default_text.clear();  // they stand for "not given"
        // An option of which this build has one value alone tells nobody anything.
        const bool has_choice = train::built_devices().size() > 1 || command_ == run_settings::kPlan;
        const bool is_shown = option.is_built() && (option.name != "device" || has_choice);
        flags.push_back({std::string(option.name), std::string(option.help), Flag::Assign(remember), false,
                         std::holds_alternative<bool run_settings::RunConfig::*>(option.member),
                         value_kind(option) + (is_required ? " REQUIRED" : ""), default_text, is_shown ? group : ""});
    }
    return flags;
}

Status ConfigFlags::apply() {
    if (!file_.empty()) ATOLL_RETURN_IF_ERROR(run_settings::assign_file(config_, file_, command_));
    for (const auto& [option, text] : texts_) ATOLL_RETURN_IF_ERROR(run_settings::assign(config_, *option, text));
    const auto built = train::built_devices();
    // A plan for a card that is not here needs no backend for it.
    if (config_.card.empty() && std::ranges::find(built, to_string(config_.device)) == built.end())
        return invalid_argument("--device", "'" + std::string(to_string(config_.device)) +
                                                "' is not built into this program, which has: " + join(built, ", ") +
                                                "; `./dev cuda` builds one for NVIDIA GPUs");
    return run_settings::check_needs(config_, command_);
}

}  // namespace atl::program
