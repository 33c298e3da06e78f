#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/model_config/tensors.h"
#include "shared/safetensors/file.h"
#include "trainer/model/model.h"
#include "trainer/quant/quantizer.h"

namespace atl::weights {

using model_config::TensorSpec;
using safetensors::DType;

// Of the model's own tensors, or of its adapters'.
std::vector<TensorSpec> tensor_specs(const model::Model& model, bool adapters, DType dtype = DType::kF32);

// The weights of a Hugging Face model directory, read in place: reading a slice touches only that slice, so that each
// rank reads its own part and no rank holds the model. Immutable after open(); any number of threads may read.
class WeightReader {
  public:
    // kNotFound/kInvalidArgument names the file: no weights, a bad header, an index that names what isn't there.
    static Result<WeightReader> open(const std::filesystem::path& directory);
    // The weights of an adapter directory, as the peft library writes it: adapter_model.safetensors.
    static Result<WeightReader> open_adapter(const std::filesystem::path& directory);

    // Checks that the directory holds exactly these tensors with these shapes, as fp16, bf16 or fp32. Tensors that
    // `ignorable` names (a full name, or "*suffix") may be there too. The error names the tensor and the file.
    Status check_tensors(std::span<const TensorSpec> expected, std::span<const std::string> ignorable = {}) const;

    // Elements [begin, end) of a tensor (row-major) as fp32 into `out`, which has end - begin elements. The error names
    // tensor and file: no such tensor, or an element that is NaN or infinite.
    Status read(std::string_view name, std::int64_t begin, std::int64_t end, std::span<float> out) const;

    // Where the files of a model whose head is tied to `table` hold a head too: that its values are the same. Reads the
    // elements of part `part` of `parts`. The error names tensor and file.
    Status check_tied_head(const std::string& table, int part, int parts) const;

    // Of one tensor's dtype, shape and bytes; kNotFound. on_read, if given, gets the bytes of each piece that is read.
    Result<std::string> sha256(std::string_view name,
                               const std::function<void(std::int64_t bytes)>& on_read = {}) const;

    // The tensors of the directory, file by file.
    std::vector<TensorSpec> tensors() const;
    // Of one tensor; kNotFound.
    Result<DType> dtype(std::string_view name) const;

    const std::filesystem::path& directory() const { return directory_; }

  private:
    WeightReader(std::filesystem::path directory, safetensors::Model model, const char* config);
    std::filesystem::path directory_;
    const char* config_;  // the file that says which tensors there are
    safetensors::Model model_;
};

// A matrix of a model's files in a quantised format, as a unit of bytes keeps it, handed over as it is made. Read a
// few rows at a time: no form of it is ever whole in memory.
Status read_quantized(const WeightReader& weights, const model::Parameter& matrix, quant::TakeBytes take);
// The same, collected.
Result<std::vector<std::byte>> read_quantized(const WeightReader& weights, const model::Parameter& matrix);

// Of the head that is in the files of a tied model.
inline constexpr char kDiffersFromTable[] =
    "differs from the embedding, to which config.json ties it: set \"tie_word_embeddings\" to false if the model has "
    "this "
    "head, or take the tensor out";

}  // namespace atl::weights
