#include "tests/numerics/engine_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trainer/quant/quantizer.h"
#include "trainer/weights/storage.h"

namespace atl::numerics {
namespace {

parallel::RunMemoryOptions options_of(const model::BatchShape& shape, const optim::Optimizer& optimizer,
                                      const parallel::Checkpointing& checkpointing) {
    parallel::RunMemoryOptions options;
    options.engine.largest = shape;
    options.engine.checkpointing = checkpointing;
    options.optimizer = &optimizer;
    return options;
}

model::Model make(const model::ModelConfig& config, kernels::Formats formats) {
    formats.masters.reset();  // nothing is updated
    model::Model model = model::make_model(config);
    model.use_formats(formats);
    return model;
}

// Of a quantised unit.
std::vector<std::byte> as_kept(const model::Parameter& parameter, std::span<const float> values) {
    std::vector<std::byte> bytes;
    if (tensor::is_quantized(parameter.stored)) {
        const auto format = parameter.stored == tensor::DType::kNf4 ? quant::Format::kNf4 : quant::Format::kInt8;
        quant::Quantizer quantizer(format, parameter.shape[0], parameter.shape[1]);
        quantizer.append(values);
        bytes = quantizer.finish();
    } else {
        const auto plain = std::as_bytes(values);
        bytes.assign(plain.begin(), plain.end());
    }
    return bytes;
}

}  // namespace

EngineModel::EngineModel(model::Model model, const model::BatchShape& shape, kernels::Backend& backend,
                         const parallel::Checkpointing& checkpointing)
    : backend_(backend),
      model_(std::move(model)),
      memory_(parallel::RunMemory::allocate(backend, model_, options_of(shape, optimizer_, checkpointing)).value()) {}

EngineModel::EngineModel(const model::ModelConfig& config, const kernels::Formats& formats,
                         const model::BatchShape& shape, kernels::Backend& backend)
    : EngineModel(make(config, formats), shape, backend) {}

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
            parallel::flat_range(memory_->store().weights(unit), parameter.offset, parameter.extent);
        if (model_.units[unit].is_quantized()) {
            const std::vector<std::byte> bytes = as_kept(parameter, values);
            return backend_.copy_from_host(bytes.data(), to);
        }
        check(weights::store_values(values, to, backend_), "a weight is beyond the format's range");
    });
    memory_->engine().weights_changed();
}

std::vector<float> EngineModel::weight(std::string_view name) {
    std::vector<float> values;
    use(name, [&](std::size_t unit, const model::Parameter& parameter) {
        const tensor::Tensor from =
            parallel::flat_range(memory_->store().weights(unit), parameter.offset, parameter.element_count());
        check(from.dtype() == tensor::DType::kF32, "weights are read in fp32");
        values.resize(static_cast<std::size_t>(parameter.element_count()));
        backend_.copy_to_host(from, values.data());
    });
    return values;
}

double EngineModel::load(const model::HostBatch& rows) {
    const auto counts = memory_->batch().load(backend_, rows).value();
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

double EngineModel::train(const model::HostBatch& rows, int passes) {
    const double targets = load(rows);
    const tensor::Tensor sum = memory_->scalars().loss();
    for (int pass = 0; pass < passes; ++pass) {
        memory_->engine().train(backend_, ranks_, memory_->batch().batch(),
                                {.gradient_scale = static_cast<float>(1 / targets),
                                 .is_first = pass == 0,
                                 .is_last = pass + 1 == passes,
                                 .loss_sum = sum});
    }
    return parallel::read_scalar(backend_, sum) / (targets * passes);
}

double EngineModel::evaluate(const model::HostBatch& rows) {
    const double targets = load(rows);
    return memory_->engine().evaluate(backend_, ranks_, &memory_->batch().batch(), memory_->scalars().loss()) / targets;
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
