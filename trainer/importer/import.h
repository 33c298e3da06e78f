#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "shared/base/result.h"
#include "trainer/weights/load.h"
#include "trainer/weights/save.h"

namespace atl::importer {

// The command `import`: a model directory, or an adapter directory, from files of PyTorch.
struct ImportOptions {
    // Hugging Face's layout: config.json with pytorch_model.bin, or its shards and pytorch_model.bin.index.json. Or
    // Meta's: params.json with consolidated.*.pth, one a model-parallel rank. Or peft's: adapter_config.json with
    // adapter_model.bin.
    std::filesystem::path from;
    std::filesystem::path out;
    std::filesystem::path tokenizer;      // a directory whose tokenizer files are copied; empty: those of `from`
    std::optional<weights::DType> dtype;  // absent: each tensor as it is
    // What Meta's params.json leaves out: the context, and how far use_scaled_rope stretches it. Refused where they
    // mean nothing.
    std::optional<std::int64_t> max_position_embeddings;
    std::optional<double> rope_factor;
};

// Whether a directory holds an adapter and no model.
bool holds_adapter(const std::filesystem::path& from);

// Converts tensor by tensor: memory is a small buffer and the mapped pages of one tensor. Without `dtype` every value
// keeps its bits. kInvalidArgument names the file (and the tensor, class or opcode in it); then nothing is written.
Result<weights::ModelSize> import_model(const ImportOptions& options);

}  // namespace atl::importer
