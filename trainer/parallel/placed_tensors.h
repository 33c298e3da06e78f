#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model/lora.h"
#include "trainer/parallel/parameter_store.h"

namespace atl::parallel {

// One part of a mesh that keeps a slice of a tensor, or all of it.
struct TensorHolder {
    int tensor = 0;  // its place in the mesh, where it is not along the ranks that share it
    int stage = 0;
    std::size_t unit = 0;
    std::int64_t offset = 0;  // of the parameter in that unit's flat buffer
    model::Slice slice;
    std::int64_t shard = 0;  // elements of that buffer a rank
};

// A tensor of the model's files and where a run's ranks keep it.
struct PlacedTensor {
    std::string name;
    std::int64_t element_count = 0;
    std::vector<TensorHolder> holders;  // their slices are the tensor; one where it is not cut
};

// The model's own tensors, or with `adapters` those that these add, in the order of the files. `store` is that of any
// rank: from the mesh each knows what the others keep.
std::vector<PlacedTensor> placed_tensors(const ParameterStore& store, const model::LoraOptions* adapters);

}  // namespace atl::parallel
