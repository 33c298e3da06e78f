#include "trainer/train/settings_table.h"

#include "shared/json/json.h"
#include "trainer/train/config.h"

namespace atl::train {
namespace {

const char* type_of(const Option& option) {
    if (std::holds_alternative<std::int64_t RunConfig::*>(option.member)) return "integer";
    if (std::holds_alternative<double RunConfig::*>(option.member)) return "number";
    return std::holds_alternative<bool RunConfig::*>(option.member) ? "boolean" : "string";
}

json::Json row_of(const Option& option) {
    const std::string type = type_of(option);
    json::Json row = {{"key", option.key()}, {"type", type}};
    if (type == "integer" || type == "number") row.update({{"min", option.min}, {"max", option.max}});
    if (!option.choices.empty()) row["choices"] = option.choices;
    if (!option.built.empty()) row["built"] = option.built;
    for (const Need& need : needs()) {
        if (need.option == option.name) row["needs"] = {find_option(need.needed, kTrain)->key(), need.value};
    }
    return row;
}

}  // namespace

std::string settings_table() {
    std::string text;
    for (const Option& option : options()) {
        if ((option.commands & kTrain) == 0) continue;
        text += (text.empty() ? "[\n  " : ",\n  ") + row_of(option).dump();
    }
    return text + "\n]\n";
}

}  // namespace atl::train
