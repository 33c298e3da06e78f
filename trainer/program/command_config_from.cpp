#include <filesystem>
#include <string>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/json/json.h"
#include "shared/log/warn.h"
#include "shared/run_settings/other_config.h"
#include "trainer/program/commands.h"
#include "trainer/train/json_lines.h"

namespace atl::program {
namespace {

class ConfigFromCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        Flag file{"FILE", "a DeepSpeed JSON, an accelerate YAML or transformers' TrainingArguments as JSON", &file_,
                  true};
        file.is_positional = true;
        return {file};
    }

    Status run() override {
        ATOLL_TRY(const std::string text, read_file(file_));
        const auto other = run_settings::recognize_config(text);
        if (!other) return explain_unknown(text);
        ATOLL_TRY(const run_settings::TranslatedConfig made, run_settings::translate_config(*other));
        for (const run_settings::ConfigNote& note : made.notes) log::warn(note.key + ": " + note.text);
        if (!made.defaults.empty()) log::warn("left out, at their defaults: " + join(made.defaults));
        train::print_line(made.settings.dump(2, ' ', false, json::Json::error_handler_t::replace));
        return {};
    }

  private:
    Error explain_unknown(const std::string& text) const {
        const auto object = json::parse(text);
        if (trim(text).starts_with('{') && !object.ok())
            return invalid_argument(file_.string(), object.error().message);
        return invalid_argument(file_.string(),
                                "is no configuration of DeepSpeed, accelerate or transformers that is known");
    }

    std::filesystem::path file_;
};

}  // namespace

std::unique_ptr<Command> make_config_from_command() {
    return std::make_unique<ConfigFromCommand>();
}

}  // namespace atl::program
