#include "trainer/model/testing/reference_driver.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

double sum_of(kernels::Backend& backend, const Tensor& values) {
    double sum = 0;
    backend.sum(values, {&sum, DType::kF64, {1}}, false);
    return sum;
}

Tensor flat(std::vector<float>& values) {
    return Tensor(values.data(), DType::kF32, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

// What a pass needs for one shape of batch.
struct ReferenceDriver::Memory {
    Arena arena = Arena::measuring();
    BatchShape shape;
    BatchBuffers batch;
    std::vector<Tensor> inputs;     // of each block; the first is empty
    std::vector<std::byte*> saved;  // of each block: as much as it saves in all
    Tensor gradient, losses, workspace, spare;

    void lay_out(const Model& model, kernels::Backend& backend) {
        batch = BatchBuffers::allocate(arena, arena, backend, model.config, shape);
        const auto activation = [&] {
            return arena.allocate(Category::kActivations, DType::kF32, {shape.tokens(), model.config.hidden_size});
        };
        std::int64_t scratch = 0;
        inputs.clear();
        saved.clear();
        for (const auto& block : model.blocks) {
            inputs.push_back(inputs.empty() ? Tensor() : activation());
            saved.push_back(
                arena.allocate_bytes(Category::kActivations, block->saved_bytes(backend, shape, Keep::kAll).kept));
            scratch = std::max(scratch, block->workspace_bytes(backend, shape, false));
        }
        gradient = activation();
        spare = activation();
        losses = arena.allocate(Category::kActivations, DType::kF32, {shape.tokens()});
        workspace = arena.allocate(Category::kWorkspace, DType::kF32, {scratch / tensor::size_bytes(DType::kF32)});
    }

    SavedMemory saved_memory(const kernels::Backend& backend, const Block& block, std::size_t index, Keep keep) const {
        return {keep, saved[index], saved[index] + block.saved_bytes(backend, shape, keep).kept};
    }

    Arena scratch() const {
        return Arena::borrowing(static_cast<std::byte*>(workspace.data()), workspace.byte_count());
    }
};

ReferenceDriver::ReferenceDriver(Model model, kernels::Backend& backend) : model_(std::move(model)), backend_(backend) {
    for (const FsdpUnit& unit : model_.units) {
        weights_.emplace_back(static_cast<std::size_t>(unit.element_count));
        gradients_.emplace_back(static_cast<std::size_t>(unit.element_count));
    }
}

ReferenceDriver::~ReferenceDriver() = default;
ReferenceDriver::ReferenceDriver(ReferenceDriver&&) noexcept = default;

Tensor ReferenceDriver::weights(std::size_t unit) {
    return flat(weights_[unit]);
}

std::span<float> ReferenceDriver::find(std::string_view name, std::vector<std::vector<float>>& buffers) {
    for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
        for (const Parameter& parameter : model_.units[unit].parameters) {
            if (parameter.name != name) continue;
            return std::span(buffers[unit])
                .subspan(static_cast<std::size_t>(parameter.offset),
                         static_cast<std::size_t>(parameter.element_count()));
        }
    }
    return {};
}

std::vector<UnitView> ReferenceDriver::views(std::size_t block, const std::vector<bool>& accumulate) {
    std::vector<UnitView> views;
    for (const std::size_t unit : model_.blocks[block]->units()) {
        views.emplace_back(model_.units[unit], flat(weights_[unit]),
                           model_.units[unit].frozen ? Tensor() : flat(gradients_[unit]), accumulate[unit]);
    }
    return views;
}

double ReferenceDriver::load(const HostBatch& host_batch) {
    if (memory_ == nullptr || memory_->shape != host_batch.shape) {
        memory_ = std::make_unique<Memory>();
        memory_->shape = host_batch.shape;
        memory_->lay_out(model_, backend_);
        memory_->arena = Arena(backend_.allocate(memory_->arena.peak_bytes()).value());
        memory_->lay_out(model_, backend_);
    }
    const auto counts = memory_->batch.load(backend_, host_batch).value();
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

double ReferenceDriver::train(const HostBatch& host_batch, const PassOptions& options) {
    const double counted = load(host_batch);
    const Memory& memory = *memory_;
    Arena scratch = memory.scratch();
    Context context{.backend = backend_, .workspace = scratch, .batch = memory.batch.batch()};
    const std::size_t first = model_.first_trained_block();
    const double divisor = options.loss_divisor > 0.0 ? options.loss_divisor : counted;
    const Loss loss{.token_losses = memory.losses, .gradient_scale = static_cast<float>(1.0 / divisor)};
    std::vector<bool> accumulate(model_.units.size(), options.accumulate);
    const std::size_t last = model_.blocks.size() - 1;
    for (std::size_t index = 0; index < last; ++index) {
        const Block& block = *model_.blocks[index];
        const SavedMemory saved = memory.saved_memory(backend_, block, index, options.keep);
        block.forward(context, views(index, accumulate), memory.inputs[index], memory.inputs[index + 1], saved,
                      nullptr);
        const auto rest_bytes = static_cast<std::size_t>(block.saved_bytes(backend_, memory.shape, options.keep).rest);
        std::fill_n(saved.rest, rest_bytes, std::byte{0xFF});  // not a number
    }
    for (std::size_t index = last + 1; index-- > first;) {
        const Block& block = *model_.blocks[index];
        context.input_gradient_needed = index > first;
        const SavedMemory saved = memory.saved_memory(backend_, block, index, options.keep);
        if (options.keep != Keep::kAll && block.is_layer())
            block.recompute(context, views(index, accumulate), memory.inputs[index], saved);
        block.backward(context, views(index, accumulate), memory.inputs[index], saved, memory.gradient, memory.gradient,
                       &loss);
        for (const std::size_t unit : block.units()) accumulate[unit] = true;
    }
    return sum_of(backend_, memory.losses) / counted;
}

double ReferenceDriver::evaluate(const HostBatch& host_batch) {
    const double counted = load(host_batch);
    const Memory& memory = *memory_;
    Arena scratch = memory.scratch();
    const Context context{.backend = backend_, .workspace = scratch, .batch = memory.batch.batch()};
    const Loss loss{.token_losses = memory.losses};
    const std::vector<bool> accumulate(model_.units.size(), false);
    for (std::size_t index = 0; index < model_.blocks.size(); ++index) {
        model_.blocks[index]->forward(context, views(index, accumulate), memory.spare, memory.spare, {}, &loss);
    }
    return sum_of(backend_, memory.losses) / counted;
}

}  // namespace atl::model
