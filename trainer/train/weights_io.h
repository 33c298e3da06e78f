#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/load.h"
#include "trainer/checkpoint/save.h"
#include "trainer/train/parameter_store.h"

namespace atl::train {

// A model directory: what it is and where its weights are.
struct ModelDirectory {
    std::filesystem::path path;
    model::Model model;
    std::optional<checkpoint::WeightReader> weights;  // reset it once they are loaded: mapped files count as memory
};

// Opens and checks a model directory: its configuration is supported and its tensors are the ones it calls for.
Result<ModelDirectory> open_model(const std::filesystem::path& directory);

// Reads what this rank keeps of the weights; only those bytes of the files are touched. Every rank takes part and gets
// the same outcome.
Status load_weights(const checkpoint::WeightReader& weights, const ParameterStore& store, kernels::Backend& backend,
                    comm::Comm& comm);

// The same where only rank 0 reads the files and sends all of it to every rank, a piece at a time. Every rank takes
// part.
Status load_weights_from_rank0(const checkpoint::WeightReader& weights, const ParameterStore& store,
                               kernels::Backend& backend, comm::Comm& comm);

// Writes the weights as a model directory. Every rank takes part, rank 0 writes; no rank holds more than what it keeps
// and a small buffer. All ranks get the same outcome.
struct SaveWhere {
    std::filesystem::path base;  // the model directory that was trained
    std::filesystem::path out;
    std::optional<checkpoint::DType> dtype;  // absent: each tensor as in the base
};
Status save_weights(const ParameterStore& store, kernels::Backend& backend, comm::Comm& comm, const SaveWhere& where);

}  // namespace atl::train
