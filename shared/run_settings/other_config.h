#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/json/json.h"

// Configurations of other programs as settings of ours: what `atoll-trainer config-from` prints.
namespace atl::run_settings {

enum class OtherTool { kDeepSpeed, kAccelerate, kTrainingArguments };
// "a DeepSpeed configuration"
std::string_view describe(OtherTool tool);

struct OtherConfig {
    OtherTool tool;
    json::Json content;  // an object
};

// A mapping as accelerate writes it: "key: value" lines, a mapping below a key by indentation, lists of scalars.
// Scalars are read as PyYAML does, but numbers as JSON has them: 1e-5 is one, 0x10, 1_000 and +5 are text. Decimal
// digits after a 0 are decimal. kInvalidArgument names the line: anything else of YAML.
Result<json::Json> parse_simple_yaml(std::string_view text);

// Whose configuration a file is: a JSON object or YAML. Absent: nobody's that is known.
std::optional<OtherConfig> recognize_config(std::string_view text);

// A setting of theirs, by its full key, and what is to be known of it.
struct ConfigNote {
    std::string key;
    std::string text;
};

struct TranslatedConfig {
    json::Json settings = json::Json::object();  // of a run.json
    std::vector<ConfigNote> notes;               // what has no counterpart, or differs
    std::vector<std::string> defaults;           // keys left out because they say what holds anyway
};

// kInvalidArgument names the key of theirs: a value of a wrong type, or one that our setting does not take.
Result<TranslatedConfig> translate_config(const OtherConfig& config);

}  // namespace atl::run_settings
