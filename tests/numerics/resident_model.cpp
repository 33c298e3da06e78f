#include "tests/numerics/resident_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace atl::numerics {
namespace {

using model::Tensor;
using tensor::Arena;
using tensor::Category;
using tensor::DType;

// Memory of one step, laid out as a driver would: measured, then real.
struct Step {
    model::BatchBuffers batch;
    std::vector<Tensor> inputs;  // of each block; the first is empty
    std::vector<std::byte*> saved;
    Tensor gradient, losses, workspace, spare;

    static Step lay_out(Arena& arena, const model::Model& model, kernels::Backend& backend, model::BatchShape shape) {
        Step step;
        step.batch = model::BatchBuffers::allocate(arena, backend, model.config, shape);
        const auto activation = [&] {
            return arena.allocate(Category::kActivations, DType::kF32, {shape.rows(), model.config.hidden_size});
        };
        std::int64_t workspace = 0;
        for (std::size_t block = 0; block < model.blocks.size(); ++block) {
            step.inputs.push_back(block == 0 ? Tensor() : activation());
            step.saved.push_back(arena.allocate_bytes(Category::kActivations, model.blocks[block]->saved_bytes(shape)));
            workspace = std::max(workspace, model.blocks[block]->workspace_bytes(backend, shape));
        }
        step.gradient = activation();
        step.spare = activation();
        step.losses = arena.allocate(Category::kActivations, DType::kF32, {shape.rows()});
        step.workspace = arena.allocate(Category::kWorkspace, DType::kF32, {workspace / 4});
        return step;
    }
};

struct Laid {
    Arena arena;
    Step step;
};

Laid lay_out(const model::Model& model, kernels::Backend& backend, model::BatchShape shape) {
    Arena measured = Arena::measuring();
    Step::lay_out(measured, model, backend, shape);
    Arena arena(backend.allocate(measured.peak_bytes()).value());
    Step step = Step::lay_out(arena, model, backend, shape);
    return {std::move(arena), std::move(step)};
}

}  // namespace

ResidentModel::ResidentModel(model::Model model, kernels::Backend& backend)
    : model_(std::move(model)), backend_(backend) {
    for (const auto& group : model_.groups) {
        weights_.emplace_back(static_cast<std::size_t>(group.element_count));
        gradients_.emplace_back(static_cast<std::size_t>(group.element_count), -7.0F);  // must be overwritten
    }
}

Tensor ResidentModel::flat(std::vector<float>& values) {
    return Tensor(values.data(), DType::kF32, {static_cast<std::int64_t>(values.size())});
}

std::span<float> ResidentModel::find(const std::string& name, std::vector<std::vector<float>>& buffers) {
    for (std::size_t group = 0; group < model_.groups.size(); ++group) {
        for (const auto& parameter : model_.groups[group].parameters) {
            if (parameter.name != name) continue;
            return std::span(buffers[group])
                .subspan(static_cast<std::size_t>(parameter.offset),
                         static_cast<std::size_t>(parameter.element_count()));
        }
    }
    return {};
}

std::vector<model::GroupView> ResidentModel::views(std::size_t block, const std::vector<bool>& accumulate) {
    std::vector<model::GroupView> views;
    for (const std::size_t group : model_.blocks[block]->groups()) {
        views.emplace_back(model_.groups[group], flat(weights_[group]), flat(gradients_[group]), accumulate[group]);
    }
    return views;
}

double ResidentModel::train(const model::BatchRows& rows, const TrainOptions& options) {
    auto [arena, step] = lay_out(model_, backend_, rows.shape);
    const auto counts = step.batch.load(backend_, rows).value();
    const double counted = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    Arena workspace = Arena::borrowing(static_cast<std::byte*>(step.workspace.data()), step.workspace.byte_count());
    const model::Context context{.backend = backend_, .workspace = workspace, .batch = step.batch.batch()};
    const double divisor = options.loss_divisor > 0 ? options.loss_divisor : counted;
    const model::Loss loss{.token_losses = step.losses, .gradient_scale = static_cast<float>(1.0 / divisor)};
    const std::size_t last = model_.blocks.size() - 1;
    std::vector<bool> accumulate(model_.groups.size(), options.accumulate);
    for (std::size_t block = 0; block < last; ++block) {
        model_.blocks[block]->forward(context, views(block, accumulate), step.inputs[block], step.inputs[block + 1],
                                      options.recompute ? nullptr : step.saved[block], nullptr);
    }
    for (std::size_t block = last + 1; block-- > 0;) {
        if (options.recompute && block < last) {
            model_.blocks[block]->forward(context, views(block, accumulate), step.inputs[block], step.spare,
                                          step.saved[block], nullptr);
        }
        model_.blocks[block]->backward(context, views(block, accumulate), step.inputs[block], step.saved[block],
                                       step.gradient, step.gradient, &loss);
        for (const std::size_t group : model_.blocks[block]->groups()) accumulate[group] = true;
    }
    return backend_.sum(step.losses) / counted;
}

double ResidentModel::evaluate(const model::BatchRows& rows) {
    auto [arena, step] = lay_out(model_, backend_, rows.shape);
    const auto counts = step.batch.load(backend_, rows).value();
    const double counted = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    Arena workspace = Arena::borrowing(static_cast<std::byte*>(step.workspace.data()), step.workspace.byte_count());
    const model::Context context{.backend = backend_, .workspace = workspace, .batch = step.batch.batch()};
    const model::Loss loss{.token_losses = step.losses};
    const std::vector<bool> accumulate(model_.groups.size(), false);
    for (std::size_t block = 0; block < model_.blocks.size(); ++block) {
        model_.blocks[block]->forward(context, views(block, accumulate), step.spare, step.spare, nullptr, &loss);
    }
    return backend_.sum(step.losses) / counted;
}

}  // namespace atl::numerics
