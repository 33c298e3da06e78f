#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/model_config/model_config.h"
#include "shared/safetensors/file.h"

// The tensors that a model of a configuration has in its files, and whether files hold just those.
namespace atl::model_config {

// One tensor of a model directory.
struct TensorSpec {
    std::string name;  // as in the file: "model.layers.0.self_attn.q_proj.weight"
    std::vector<std::int64_t> shape;
    safetensors::DType dtype = safetensors::DType::kF32;  // on disk; ignored where a function doesn't mention it
};

// All of them, named as transformers names them; without the head where it is tied to the embedding.
std::vector<TensorSpec> tensors_of(const ModelConfig& config);

// The head's matrix in a model's files.
inline constexpr char kHeadWeight[] = "lm_head.weight";

// OPT's table of positions begins with this many rows that no position uses.
inline constexpr std::int64_t kUnusedPositions = 2;

// Names of tensors ("*suffix" for several) that a model's files may hold and that say nothing: a tied head, buffers of
// old versions of transformers.
std::vector<std::string> ignorable_tensors(const ModelConfig& config);
// Whether one of the patterns is the name, or "*suffix" of it.
bool is_ignorable(std::string_view name, std::span<const std::string> patterns);

// That the files hold exactly these tensors with these shapes, as fp16, bf16 or fp32; those that `ignorable` names may
// be there too. `needed_by` ("config.json") and `where` (the directory) are for the error, which names tensor and file.
Status check_tensors(const safetensors::Model& files, std::span<const TensorSpec> expected,
                     std::span<const std::string> ignorable, const char* needed_by, const std::string& where);

// Looks for values that are NaN or infinite in the fp16, bf16 and fp32 tensors of a model's files, while somebody reads
// them for another purpose. `files` must outlive it. Any number of threads.
class ValueCheck {
  public:
    explicit ValueCheck(const safetensors::Model& files);
    // Of the bytes at `offset` of a file; of other files nothing is said. The error names tensor, element and file.
    Status check(const std::filesystem::path& file, std::uint64_t offset, std::span<const std::byte> bytes) const;

  private:
    std::map<std::string, std::vector<safetensors::Model::Entry>> entries_;  // by path
};

// kF32, kF16 or kBF16.
bool is_weight_dtype(safetensors::DType dtype);

// "[2, 3]"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace atl::model_config
