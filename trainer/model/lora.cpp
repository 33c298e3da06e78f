#include "trainer/model/lora.h"

#include <algorithm>
#include <iterator>

#include "trainer/model/linear.h"
#include "trainer/model/model.h"

namespace atl::model {
namespace {

constexpr std::string_view kWeight = ".weight";

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

std::string module_name(const Parameter& parameter) {
    const std::string& name = parameter.name;
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

Status add_adapters(Model& model, const LoraOptions& options) {
    // Also those of other parts.
    ATOLL_RETURN_IF_ERROR(adapter::check_targets(options, linear_names(make_model(model.config))));
    for (FsdpUnit& unit : model.units) unit.frozen = true;
    for (const auto& block : model.blocks) {
        FsdpUnit frozen{.name = block->name() + ".adapters.a", .parameters = {}, .frozen = true, .is_adapter = true};
        FsdpUnit trained{.name = block->name() + ".adapters", .parameters = {}, .is_adapter = true};
        for (FusedLinear* linear : block->linears())
            linear->adapt(model.units[block->units().front()], options, frozen, trained);
        for (FsdpUnit* unit : {&frozen, &trained}) {
            if (unit->parameters.empty()) continue;
            for (Parameter& parameter : unit->parameters)
                parameter.become_part(model.part.tensor_rank, model.part.tensor_ranks);
            block->use_adapters(model.units.size());
            model.units.push_back(std::move(*unit));
        }
    }
    return {};
}

}  // namespace atl::model
