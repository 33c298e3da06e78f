#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "trainer/model_io/model_directory.h"
#include "trainer/parallel/parameter_store.h"
#include "trainer/weights/delta_writer.h"
#include "trainer/weights/save.h"

namespace atl::model_io {

// Reads what this rank keeps of the weights; only those bytes of the files are touched. With from_rank0 only rank 0
// reads the files, and sends all of it to every rank, a piece at a time, which takes a model that is not cut. New
// adapters get their initial values. Every rank takes part and gets the same outcome.
Status load_weights(const ModelDirectory& directory, parallel::ParameterStore& store, kernels::Backend& backend,
                    comm::Comm& comm, bool from_rank0);

// To save the change from the base instead of the weights.
struct SaveDelta {
    delta::Format format = delta::Format::kInt8;
    std::string base_name;             // as the file says it
    std::filesystem::path error_from;  // what rounding lost of the change before; empty: there was none
    std::string error_if_named;        // whose alone is taken, and only if it fits; empty: all others are errors
    std::filesystem::path error_out;   // where what it loses of this one goes
    std::string error_name;            // whose it is
};

struct SaveWhere {
    std::filesystem::path base;  // the model directory that was trained
    std::filesystem::path out;
    std::optional<weights::DType> dtype;           // absent: each tensor as in the base
    const model::LoraOptions* adapters = nullptr;  // save those, not the model
    weights::AdapterBase trained_on = {};          // those
    std::filesystem::path adapter = {};            // the directory of those that were trained; empty: they are new
    std::optional<SaveDelta> delta = {};           // absent: the weights themselves
};

// Writes the weights as a model directory, or the adapters as an adapter directory. What it takes from the base it
// takes when it is made (of a delta, the base's files opened); so a run makes it before its first step, and the base
// may go. Every rank takes part, rank 0 writes; no rank holds more than what it keeps and a small buffer. All ranks get
// the same outcomes.
class WeightSaver {
  public:
    static Result<WeightSaver> create(const model::Model& model, comm::Comm& comm, const SaveWhere& where);
    // A file that appears beside the weights. Before save(); rank 0's bytes count.
    Status add_file(const std::string& name, std::string_view bytes, comm::Comm& comm);
    // Where such a file may be written instead; on rank 0, else empty.
    std::filesystem::path staged() const;
    // Writes the weights as they are to another directory, in the place of a model or adapter that is there; as often
    // as wanted, before save(). Not of a delta.
    Status save_copy(const std::filesystem::path& out, parallel::ParameterStore& store, kernels::Backend& backend,
                     comm::Comm& comm);
    Status save(parallel::ParameterStore& store, kernels::Backend& backend, comm::Comm& comm);  // once
    std::uint64_t bytes() const;  // of what is saved; on rank 0
    // On rank 0: what rounding lost before was to be added to the change and is not, and why was said in a warning.
    bool begins_without_error() const { return begins_without_error_; }

  private:
    Status open(const model::ModelConfig& config, const SaveWhere& where);
    Status open_delta(const model::ModelConfig& config, const SaveWhere& where);
    Status append(std::span<const float> values);
    std::optional<weights::WeightWriter> writer_;       // on rank 0
    std::optional<weights::DeltaWriter> delta_writer_;  // on rank 0, instead of it
    std::optional<model::LoraOptions> adapters_;        // what is saved; absent: the model itself
    bool begins_without_error_ = false;
};

// What WeightSaver takes of rank 0's memory meanwhile, of the model's weights or of its adapters'.
std::int64_t save_buffer_bytes(const model::Model& model, bool adapters);

}  // namespace atl::model_io
