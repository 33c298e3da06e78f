// docs/reference/settings.md is made from what the services read of their configuration, and from the trainer's
// options.
#include "services/aggregation/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "services/dispatch/settings.h"
#include "services/registry/settings.h"
#include "services/store/settings.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/run_settings/other_words.h"
#include "shared/run_settings/run_settings.h"
#include "shared/service/settings.h"
#include "shared/service/settings_reader.h"
#include "tests/reference/page.h"

namespace atl {
namespace {

constexpr const char* kSettingsIntroduction = R"(# Settings

## Where they are

A service reads one YAML file (`--config`; `--check-config` only checks it). It holds the keys common to all services, and the
service's own keys below its name. `${NAME}` is replaced by an environment variable, and an unknown key is an error. `atoll up`
writes these files itself; put your own settings in `settings.yaml` in its state directory, grouped by service. With Docker
Compose, edit `compose/config/*.yaml`; in the Helm chart, set `settings.NAME` in the values. Restart a service to apply them.

This page is generated from what the programs read, by `tests/reference`.

)";

// What `read` asks for, of an object that has nothing.
template <class Settings>
std::vector<service::Setting> settings_of(Settings (*read)(service::SettingsReader&)) {
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
    return {{"Every service", settings_of(service::read_settings)},
            {"`registry:`", settings_of(registry::read_settings)},
            {"`store:`", settings_of(store::read_settings)},
            {"`dispatch:`", settings_of(dispatch::read_settings)},
            {"`aggregation:`", settings_of(aggregation::read_settings)}};
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
        "`atoll-trainer`.\nDispatch sets what depends on facility and round itself (model, data, out, adapter, "
        "resume).\n\n| key | values | default | commands | meaning |\n|---|---|---|---|---|\n";
    for (const run_settings::Option& option : run_settings::options()) {
        if (!option.is_built()) continue;
        text += fmt::format("| `{}` | {} | {} | {} | {} |\n", option.key(),
                            fmt::format("{}", fmt::join(run_settings::words(option), ", ")), default_of(option),
                            commands_of(option), option.help);
    }
    return text;
}

std::string other_words_table() {
    std::string text =
        "\n## Words of other programs\n\nWhat transformers' TrainingArguments, DeepSpeed, accelerate, torchrun, peft, "
        "llama-recipes and Megatron-LM call these\nsettings. They are refused with ours, as flags (also with `-` in "
        "place of `_`), in `run.json` and in jobs.\nOurs are keys, and flags with `-` in place of `_`; what begins "
        "with "
        "`--` is a flag alone.\n\n| theirs | ours |\n|---|---|\n";
    for (const run_settings::OtherWord& other : run_settings::other_words()) {
        const run_settings::Option* option = run_settings::find_option(other.option, run_settings::kEvery);
        const std::string ours = option != nullptr      ? option->key()
                                 : other.option.empty() ? ""
                                                        : "--" + std::string(other.option);
        const std::string value = other.value.empty() ? "" : fmt::format(" {}", other.value);
        const std::string of = other.command.empty() ? "" : fmt::format(" of `{}`", other.command);
        const std::string note = ours.empty() || other.note.empty() ? "" : ": ";
        text += fmt::format("| `{}` | {}{}{}{} |\n", other.word, ours.empty() ? "" : "`" + ours + value + "`", of, note,
                            other.note);
    }
    return text;
}

TEST(SettingsReferenceTest, ThePageIsAsTheTables) {
    std::string page = kSettingsIntroduction;
    for (const Section& one : sections()) page += service::describe_settings(one.heading, one.settings);
    reference::expect_page("settings.md", page + training_table() + other_words_table());
}

// The chart's schema knows the services' own keys: with another one a service would not start, and the store be away.
TEST(SettingsReferenceTest, TheChartTakesTheKeysOfEachService) {
    const std::filesystem::path file =
        std::filesystem::path(ATOLL_DOCS).parent_path() / "charts/atoll/values.schema.json";
    std::string text = read_file(file).value();
    for (const Section& one : sections()) {
        if (!one.heading.starts_with('`')) continue;
        std::vector<std::string> keys;
        for (const service::Setting& setting : one.settings) keys.push_back(in_quotes(setting.key));
        const std::string begin = fmt::format(R"("{}": {{"type": "object", "propertyNames": {{"enum": [)",
                                              one.heading.substr(1, one.heading.size() - 3));
        const auto at = text.find(begin);
        ASSERT_NE(at, std::string::npos) << begin;
        const auto from = at + begin.size(), end = text.find(']', from);
        const std::string wanted = join(keys);
        if (std::getenv("ATOLL_WRITE_DOCS") != nullptr) {
            text.replace(from, end - from, wanted);
            ASSERT_TRUE(write_file_atomic(file, text).ok());
        } else {
            EXPECT_EQ(text.substr(from, end - from), wanted) << "ATOLL_WRITE_DOCS=1 writes it";
        }
    }
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
