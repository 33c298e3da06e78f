#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/adapter/adapter.h"
#include "shared/base/result.h"
#include "shared/delta/delta.h"
#include "trainer/model/lora.h"
#include "trainer/weights/save.h"

// Adapter directories as the peft library reads and writes them.
namespace atl::weights {

inline constexpr const char* kAdapterConfig = adapter::kConfigFile;
inline constexpr const char* kAdapterFile = adapter::kWeightsFile;

inline constexpr const char* kAdapterBinFile = "adapter_model.bin";  // of older versions of peft; not read in place

inline bool is_adapter_file(std::string_view name) {
    return name == kAdapterConfig || name == kAdapterFile || name == delta::kFile;
}

// kInvalidArgument names the file and the key: another kind of adapter than LoRA, or a key that would change the
// mathematics (use_dora, modules_to_save, bias, …) or is not known to be harmless.
Result<model::LoraOptions> load_adapter_config(const std::filesystem::path& directory);

// The quantization of an adapter whose base was the model's own weights.
inline constexpr char kNotQuantized[] = "none";

// What an adapter was trained on.
struct AdapterBase {
    std::string directory;     // that adapter_config.json names
    std::string quantization;  // the format of the frozen weights: "int8", "nf4" or kNotQuantized
    std::string sha256;        // of the tensors in that directory
};

// The format and the sha256 are those in the metadata of its weights; empty: another program wrote it.
Result<AdapterBase> load_adapter_base(const std::filesystem::path& directory);

// Its format when a base in `quantize` ("int8", "nf4", or "none") is another than that; empty: it is the same, or not
// known.
std::string other_format(const AdapterBase& trained_on, const std::string& quantize);

// Its configuration, in a directory that is being made, and what the metadata of its weights say.
Result<std::map<std::string, std::string>> stage_adapter(const StagedDirectory& staged,
                                                         const model::LoraOptions& options, const AdapterBase& base);

// A writer of an adapter directory, in the specs' dtypes.
Result<WeightWriter> create_adapter(const std::filesystem::path& out, std::vector<TensorSpec> tensors,
                                    const model::LoraOptions& options, const AdapterBase& base);

}  // namespace atl::weights
