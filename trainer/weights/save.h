#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/staged_directory.h"
#include "trainer/weights/load.h"

namespace atl::weights {

struct SaveOptions {
    // The model directory whose config.json, tokenizer and generation files are copied; empty: no such files. In the
    // copy, config.json's dtype (or torch_dtype) is that of the weights.
    std::filesystem::path base;
    std::filesystem::path config;                   // a config.json to copy instead of base's
    std::string config_text;                        // the text of a config.json instead of both
    std::optional<DType> dtype;                     // kF32, kF16 or kBF16 for all; absent: as each TensorSpec says
    std::uint64_t shard_bytes_max = 5'000'000'000;  // a larger model is written in shards with an index
    // The whole work of a command: refuse what the file system has no room for before any byte. (A training asks for
    // its states, too.)
    bool is_whole_command = false;
};

// A model as its files have it.
struct ModelSize {
    std::uint64_t parameters = 0;
    std::uint64_t bytes = 0;  // of their values
};
// As the one JSON line that the commands print which make a model.
std::string to_json_line(const ModelSize& size);

// How a directory's weights are written: STEM.safetensors, or shards and their index.
struct WeightFiles {
    std::string stem;
    std::string config;                           // the file without which they are nothing
    std::map<std::string, std::string> metadata;  // of each file
    std::uint64_t shard_bytes_max;
};

// Writes a model directory, tensor by tensor, in the order of the specs: `append` takes the next values, in pieces of
// any size, so that the writer never holds more than a small block. Only the rank that writes makes one.
//
//   ATOLL_TRY(auto writer, WeightWriter::create(out, specs, options));
//   for (each tensor) for (each gathered piece) ATOLL_RETURN_IF_ERROR(writer.append(piece));
//   ATOLL_RETURN_IF_ERROR(writer.finish());
//
// `out` may exist (the trainer keeps other things in it). The new files are complete and synced in a directory of their
// own inside it before the first is renamed into place. A crash before that, or a full disk, leaves what was there; a
// crash between the renames leaves no config.json, and so no model: never a mixture.
class WeightWriter {
  public:
    // kConflict: another process is writing into `out`. kInsufficientStorage, naming --out: there is no room.
    static Result<WeightWriter> create(const std::filesystem::path& out, std::vector<TensorSpec> tensors,
                                       const SaveOptions& options);
    // Beside files that are staged already, in the specs' dtypes.
    static Result<WeightWriter> create(StagedDirectory staged, std::vector<TensorSpec> tensors, WeightFiles files);
    // The same tensors and the files that are staged beside them, into another directory; `other` has not finished.
    static Result<WeightWriter> create_like(const WeightWriter& other, const std::filesystem::path& out);
    ~WeightWriter();  // without finish(): removes what it wrote
    WeightWriter(WeightWriter&&) noexcept;
    WeightWriter& operator=(WeightWriter&&) noexcept;

    // fp32 rounds to nearest even. kInvalidArgument names the tensor when a finite value overflows fp16 or a value is
    // NaN or infinite: such a model could not be loaded again.
    Status append(std::span<const float> values);
    // Puts another file beside the weights, which appears with them. Before finish().
    Status add_file(const std::string& name, std::string_view bytes);
    Status finish();
    // Where such files may be written, too: what is there by finish() appears with the weights.
    const std::filesystem::path& staged() const;
    ModelSize size() const;  // of the whole model

  private:
    struct Impl;
    explicit WeightWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Copies config.json, tokenizer and generation files of a model directory into one that is being made.
Status stage_model_files(const StagedDirectory& staged, const std::filesystem::path& base);

// Whether a file of this name may belong to a model directory that WeightWriter made.
bool is_model_file(std::string_view name);

// kInsufficientStorage naming --out when the disk of that directory has less than these bytes free; `needed` says what
// needs them: "the model needs". In fp64, as a size that somebody mistyped is beyond 64 bits soon.
Status check_room(const std::filesystem::path& out, double bytes, const std::string& needed);

// kInvalidArgument naming --out when it is the directory of the model that is read: nobody could make its result again.
Status check_not_the_model(const std::filesystem::path& out, const std::filesystem::path& model);

}  // namespace atl::weights
