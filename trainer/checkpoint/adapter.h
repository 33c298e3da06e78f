#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/checkpoint/save.h"
#include "trainer/model/lora.h"

// Adapter directories as the peft library reads and writes them: adapter_config.json and adapter_model.safetensors,
// whose tensors are named "base_model.model." + the module + ".lora_A.weight" and ".lora_B.weight".
namespace atl::checkpoint {

inline constexpr char kAdapterConfig[] = "adapter_config.json";
inline constexpr char kAdapterFile[] = "adapter_model.safetensors";

inline bool is_adapter_file(std::string_view name) {
    return name == kAdapterConfig || name == kAdapterFile;
}

// kInvalidArgument names the file and the key: another kind of adapter than plain LoRA, or a key that would change the
// mathematics (use_dora, rank_pattern, bias, …) or is not known to be harmless.
Result<model::LoraOptions> load_adapter_config(const std::filesystem::path& directory);

// The base_quantization of an adapter whose base was the model's own weights.
inline constexpr char kNotQuantized[] = "none";

// The format of the frozen base that an adapter of ours was trained on, "int8", "nf4" or kNotQuantized, as its weights'
// metadata have it; empty: another program wrote it.
Result<std::string> adapter_quantization(const std::filesystem::path& directory);

// That format when a base in `quantize` ("int8", "nf4", or "none") is another than the adapter was trained on; empty:
// it is the same, or not known.
Result<std::string> other_base(const std::filesystem::path& directory, const std::string& quantize);

// What an adapter was trained on: the directory that adapter_config.json names, and adapter_quantization(), or empty
// for the model's own weights.
struct AdapterBase {
    std::string directory;
    std::string quantization;
};
// A writer of an adapter directory, in the specs' dtypes.
Result<WeightWriter> create_adapter(const std::filesystem::path& out, std::vector<TensorSpec> tensors,
                                    const model::LoraOptions& options, const AdapterBase& base);

}  // namespace atl::checkpoint
