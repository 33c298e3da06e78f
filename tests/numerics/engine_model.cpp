#include "tests/numerics/engine_model.h"

#include <algorithm>
#include <numeric>

#include "trainer/weights/storage.h"

namespace atl::numerics {
namespace {

parallel::RunMemoryOptions options_of(const model::BatchShape& shape, const optim::Optimizer& optimizer) {
    parallel::RunMemoryOptions options;
    options.engine.largest = shape;
    options.optimizer = &optimizer;
    return options;
}

model::Model make(const model::ModelConfig& config, kernels::Formats formats) {
    formats.has_masters = false;  // nothing is updated
    model::Model model = model::make_model(config);
    model.use_formats(formats);
    return model;
}

}  // namespace

EngineModel::EngineModel(const model::ModelConfig& config, const kernels::Formats& formats,
                         const model::BatchShape& shape, kernels::Backend& backend)
    : backend_(backend),
      model_(make(config, formats)),
      memory_(parallel::RunMemory::allocate(backend, model_, options_of(shape, optimizer_)).value()) {}

template <class Use>
void EngineModel::use(std::string_view name, const Use& use_part) {
    for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
        for (const model::Parameter& parameter : model_.units[unit].parameters) {
            if (parameter.name == name) return use_part(unit, parameter);
        }
    }
    check(false, "the model has no parameter of that name");
}

void EngineModel::set_weight(std::string_view name, std::span<const float> values) {
    use(name, [&](std::size_t unit, const model::Parameter& parameter) {
        const tensor::Tensor to =
            parallel::flat_range(memory_->store().weights(unit), parameter.offset, parameter.element_count());
        check(weights::store_values(values, to, backend_), "a weight is beyond the format's range");
    });
    memory_->engine().weights_changed();
}

double EngineModel::train(const model::HostBatch& rows) {
    const auto counts = memory_->batch().load(backend_, rows).value();
    const auto targets = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    const auto scale = static_cast<float>(1 / targets);
    const tensor::Tensor sum = memory_->scalars().loss();
    memory_->engine().train(backend_, ranks_, memory_->batch().batch(), {.gradient_scale = scale, .loss_sum = sum});
    return parallel::read_scalar(backend_, sum) / targets;
}

std::vector<float> EngineModel::gradient(std::string_view name) {
    std::vector<float> values;
    use(name, [&](std::size_t unit, const model::Parameter& parameter) {
        values.resize(static_cast<std::size_t>(parameter.element_count()));
        backend_.copy_to_host(
            parallel::flat_range(memory_->store().gradients(unit), parameter.offset, parameter.element_count()),
            values.data());
    });
    return values;
}

}  // namespace atl::numerics
