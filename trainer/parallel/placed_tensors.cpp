#include "trainer/parallel/placed_tensors.h"

#include <map>
#include <utility>

namespace atl::parallel {
namespace {

class Places {
  public:
    explicit Places(const ParallelLayout& layout) : layout_(layout) {}

    void add(const model::Model& part, bool adapters, int tensor, int stage) {
        for (std::size_t index = 0; index < part.units.size(); ++index) {
            const model::FsdpUnit& unit = part.units[index];
            if (unit.is_adapter != adapters) continue;
            const std::int64_t shard = shard_spec(unit, layout_).shard;
            for (const model::Parameter& parameter : unit.parameters)
                add(parameter, {tensor, stage, index, parameter.offset, parameter.slice(), shard});
        }
    }
    std::vector<PlacedTensor> take() { return std::move(tensors_); }

  private:
    void add(const model::Parameter& parameter, const TensorHolder& holder) {
        const auto [found, is_new] = numbers_.try_emplace(parameter.name, tensors_.size());
        if (is_new) {
            const std::int64_t rows = parameter.shape_in_file().front();
            tensors_.push_back({parameter.name, rows * holder.slice.width, {}});
        }
        PlacedTensor& tensor = tensors_[found->second];
        if (is_new || parameter.is_slice()) tensor.holders.push_back(holder);
    }

    ParallelLayout layout_;
    std::vector<PlacedTensor> tensors_;
    std::map<std::string, std::size_t> numbers_;  // by name
};

}  // namespace

std::vector<PlacedTensor> placed_tensors(const ParameterStore& store, const model::LoraOptions* adapters) {
    const Mesh& mesh = store.layout().mesh;
    const model::ModelConfig& config = store.model().config;
    Places places(store.layout());
    for (int stage = 0; stage < mesh.pipeline; ++stage) {
        for (int tensor = 0; tensor < mesh.tensor; ++tensor) {
            model::Model part =
                model::make_model(config, model::model_part(config, tensor, mesh.tensor, stage, mesh.pipeline));
            if (adapters != nullptr) {
                const Status added = model::add_adapters(part, *adapters);
                check(added.ok(), "placed_tensors: adapters that this model does not have");
            }
            places.add(part, adapters != nullptr, tensor, stage);
        }
    }
    return places.take();
}

}  // namespace atl::parallel
