#include "trainer/model/lora.h"

#include <algorithm>

#include "trainer/model/linear.h"
#include "trainer/model/model.h"

namespace atl::model {
namespace {

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kWeight = ".weight";

bool answers_to(std::string_view module, std::string_view target) {
    if (!module.ends_with(target)) return false;
    return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

// Says what the linears of a layer are called.
Status unknown_target(const Model& model, const std::string& target) {
    std::string names;
    for (const auto& block : model.blocks) {
        for (const LinearRun& run : block->linears()) {
            for (const std::string& module : run.modules(model.groups[block->groups().front()])) {
                names += (names.empty() ? "" : ", ") + module.substr(module.rfind('.') + 1);
            }
        }
        if (!names.empty()) break;
    }
    return invalid_argument("--lora-targets",
                            "'" + target + "' is no linear of this model's layers; those are " + names);
}

bool has_target(const Model& model, const std::string& target) {
    for (const auto& block : model.blocks) {
        for (const LinearRun& run : block->linears()) {
            for (const std::string& module : run.modules(model.groups[block->groups().front()])) {
                if (answers_to(module, target)) return true;
            }
        }
    }
    return false;
}

}  // namespace

bool LoraOptions::covers(std::string_view module) const {
    return std::ranges::any_of(
        targets, [&](const std::string& target) { return target == kAllLinear || answers_to(module, target); });
}

std::string module_of(const Parameter& parameter) {
    const std::string& name = parameter.name;
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

Status add_adapters(Model& model, const LoraOptions& options) {
    for (const std::string& target : options.targets) {
        if (target != kAllLinear && !has_target(model, target)) return unknown_target(model, target);
    }
    for (ParameterGroup& group : model.groups) group.frozen = true;
    for (const auto& block : model.blocks) {
        const std::span<LinearRun> linears = block->linears();
        if (linears.empty()) continue;
        ParameterGroup adapters{.name = block->name() + ".adapters", .parameters = {}, .is_adapter = true};
        for (LinearRun& run : linears) run.adapt(model.groups[block->groups().front()], options, adapters);
        if (adapters.parameters.empty()) continue;
        block->use_adapters(model.groups.size());
        model.groups.push_back(std::move(adapters));
    }
    return {};
}

}  // namespace atl::model
