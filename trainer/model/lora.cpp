#include "trainer/model/lora.h"

#include <algorithm>
#include <iterator>

#include "trainer/model/linear.h"
#include "trainer/model/model.h"

namespace atl::model {
namespace {

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kHead = "lm_head";  // which peft's "all-linear" leaves out
constexpr std::string_view kWeight = ".weight";

bool answers_to(std::string_view module, std::string_view target) {
    if (!module.ends_with(target)) return false;
    return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

// Says what the linears are called.
Status unknown_target(const std::vector<std::string>& linears, const std::string& target) {
    std::vector<std::string> names;
    std::string text;
    for (const std::string& module : linears) {
        const std::string name = module.substr(module.rfind('.') + 1);  // all of it, without a dot
        if (std::ranges::find(names, name) != names.end()) continue;
        names.push_back(name);
        text += (text.empty() ? "" : ", ") + name;
    }
    return invalid_argument("--lora-targets", "'" + target + "' is no linear of this model; those are " + text);
}

// The full names.
std::vector<std::string> linear_names(const Model& model) {
    std::vector<std::string> names;
    for (const auto& block : model.blocks) {
        for (const FusedLinear* linear : block->linears())
            std::ranges::move(linear->module_names(model.units[block->units().front()]), std::back_inserter(names));
    }
    return names;
}

}  // namespace

bool LoraOptions::covers(std::string_view module) const {
    return std::ranges::any_of(targets, [&](const std::string& target) {
        return target == kAllLinear ? module != kHead : answers_to(module, target);
    });
}

std::string module_name(const Parameter& parameter) {
    const std::string& name = parameter.name;
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

Status add_adapters(Model& model, const LoraOptions& options) {
    const std::vector<std::string> linears = linear_names(make_model(model.config));  // also those of other parts
    for (const std::string& target : options.targets) {
        const auto is_meant = [&](const std::string& module) { return answers_to(module, target); };
        if (target != kAllLinear && std::ranges::none_of(linears, is_meant)) return unknown_target(linears, target);
    }
    for (FsdpUnit& unit : model.units) unit.frozen = true;
    for (const auto& block : model.blocks) {
        FsdpUnit adapters{.name = block->name() + ".adapters", .parameters = {}, .is_adapter = true};
        for (FusedLinear* linear : block->linears())
            linear->adapt(model.units[block->units().front()], options, adapters);
        if (adapters.parameters.empty()) continue;
        for (Parameter& parameter : adapters.parameters)
            parameter.become_part(model.part.tensor_rank, model.part.tensor_ranks);
        block->use_adapters(model.units.size());
        model.units.push_back(std::move(adapters));
    }
    return {};
}

}  // namespace atl::model
