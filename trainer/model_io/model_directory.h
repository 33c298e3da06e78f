#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/comm/comm.h"
#include "trainer/model/lora.h"
#include "trainer/model/model.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/load.h"

// Model directories as the ranks of a run read and write them.
namespace atl::model_io {

// The adapters of a run: trained on a frozen model, or evaluated with it.
struct AdapterSource {
    model::LoraOptions options;
    std::optional<weights::WeightReader> weights;  // absent: new ones, from the seed
    weights::AdapterBase trained_on;               // of those in `weights`
    std::uint64_t seed = 0;
};

// A model directory: what it is and where its weights are.
struct ModelDirectory {
    std::filesystem::path path;
    model::Model model;
    std::optional<weights::WeightReader>
        weights;                            // until close_files(); absent also where Weights::kIfThere found none
    std::optional<AdapterSource> adapters;  // what the model was given beside its own weights

    // Once the weights are loaded: mapped files count as memory.
    void close_files();
};

// Whether a command reads the weights: one that only needs to know their shapes does without files of them.
enum class Weights : std::uint8_t { kNeeded, kIfThere };

// Opens and checks a model directory: its configuration is supported and its tensors are the ones it calls for.
Result<ModelDirectory> open_model_directory(const std::filesystem::path& directory, Weights wanted = Weights::kNeeded);
// Where a tied model's files hold the head too: that it is the embedding. The ranks share the reading, or with
// from_rank0 leave it to rank 0; all get the same outcome.
Status check_tied_head(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0);
// Freezes the model and adds adapters to it. kInvalidArgument: they are not for this model.
Status add_adapters(ModelDirectory& directory, AdapterSource adapters);

// The sha256 of a model directory's own tensors, by name: their formats, shapes and bytes, however they are spread over
// files. So a training knows again what it began with. The ranks hash a part of the tensors each, with
// `from_rank0` (--broadcast-from-rank0) rank 0 all of them; all get the same outcome.
Result<std::string> base_digest(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0);
// The same of the tensors of the adapter that the run begins with.
Result<std::string> adapter_digest(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0);

// Rank 0 says so on standard error when an adapter was trained on other weights than the model's, whose base_digest()
// is `sha256`.
void warn_of_other_weights(const ModelDirectory& directory, const weights::AdapterBase& trained_on,
                           const std::string& sha256, const comm::Comm& comm);
// The same where the weights are still to be read, which they are only if the adapter tells. Every rank takes part and
// gets the same outcome.
Status warn_of_other_weights(const ModelDirectory& directory, const weights::AdapterBase& trained_on, comm::Comm& comm,
                             bool from_rank0);

}  // namespace atl::model_io
