// docs/reference/settings.md is made from what the services read of their configuration, and from the trainer's
// options.
#include "services/aggregation/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

#include "services/dispatch/settings.h"
#include "services/registry/settings.h"
#include "services/store/settings.h"
#include "shared/run_settings/run_settings.h"
#include "shared/service/settings.h"
#include "shared/service/settings_reader.h"
#include "tests/reference/page.h"

namespace atl {
namespace {

constexpr const char* kSettingsIntroduction = R"(# Settings

## Where they are

A service reads one YAML file (`--config`; `--check-config` only checks it): the keys that every service has, and its own
below its name. `${NAME}` stands for a variable of the environment. A key that no service has is an error. `atoll up` writes
these files itself; what you set stands in `settings.yaml` in its state directory, by service. With Docker Compose they are
`compose/config/*.yaml`, in the Helm chart `settings.NAME` of its values. They are read at the service's start.

This page is made from what the programs read: `tests/reference`.

)";

// What `read` asks for, of an object that has nothing.
template <class Read>
std::vector<service::Setting> settings_of(Read read) {
    const json::Json nothing = json::Json::object();
    service::SettingsReader reader(nothing);
    read(reader);
    return {reader.settings().begin(), reader.settings().end()};
}

struct Section {
    std::string heading;
    std::vector<service::Setting> settings;
};

std::vector<Section> sections() {
    const auto of = [](auto read) { return settings_of([read](service::SettingsReader& reader) { read(reader); }); };
    return {{"Every service", of([](auto& reader) { service::read_settings(reader); })},
            {"`registry:`", of([](auto& reader) { registry::read_settings(reader); })},
            {"`store:`", of([](auto& reader) { store::read_settings(reader); })},
            {"`dispatch:`", of([](auto& reader) { dispatch::read_settings(reader); })},
            {"`aggregation:`", of([](auto& reader) { aggregation::read_settings(reader); })}};
}

std::string commands_of(const run_settings::Option& option) {
    using namespace run_settings;
    std::vector<std::string> names;
    for (const auto& [bit, name] : {std::pair(kTrain, "train"), std::pair(kEval, "eval"), std::pair(kPlan, "plan"),
                                    std::pair(kGenerate, "generate")})
        if ((option.commands & bit) != 0) names.emplace_back(name);
    return fmt::format("{}", fmt::join(names, ", "));
}

std::string default_of(const run_settings::Option& option) {
    const std::string text = run_settings::value_text({}, option);
    return text.empty() ? "" : "`" + text + "`";
}

std::string training_table() {
    std::string text =
        "## Training\n\nKeys of a job's training settings and of `run.json`; with `-` in place of `_` they are flags "
        "of "
        "`atoll-trainer`.\nA job sets by itself what depends on the facility and the round (model, data, out, adapter, "
        "resume).\n\n| key | values | default | commands | what it is |\n|---|---|---|---|---|\n";
    for (const run_settings::Option& option : run_settings::options()) {
        if (!option.is_built()) continue;
        text += fmt::format("| `{}` | {} | {} | {} | {} |\n", option.key(),
                            fmt::format("{}", fmt::join(run_settings::words(option), ", ")), default_of(option),
                            commands_of(option), option.help);
    }
    return text;
}

TEST(SettingsReferenceTest, ThePageIsAsTheTables) {
    std::string page = kSettingsIntroduction;
    for (const Section& one : sections()) page += service::describe_settings(one.heading, one.settings);
    reference::expect_page("settings.md", page + training_table());
}

TEST(SettingsReferenceTest, EverySettingSaysWhatItIsInOneSentence) {
    for (const Section& one : sections()) {
        std::set<std::string> keys;
        for (const service::Setting& setting : one.settings) {
            EXPECT_TRUE(keys.insert(setting.key).second) << one.heading << " has " << setting.key << " twice";
            EXPECT_FALSE(setting.meaning.empty() || setting.meaning.ends_with('.')) << setting.key;
            EXPECT_EQ((setting.values + setting.fallback + setting.meaning).find_first_of("|\n"), std::string::npos)
                << setting.key;
        }
    }
}

}  // namespace
}  // namespace atl
