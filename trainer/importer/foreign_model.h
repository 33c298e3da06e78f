#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "trainer/importer/import.h"
#include "trainer/importer/torch_file.h"

// Inside trainer/importer only.
namespace atl::importer {

// How the parts of a tensor make the whole. A tensor of one dimension counts as one column.
enum class Join : std::uint8_t { kRows, kColumns, kCopies };

// One of the model's tensors and where its values are.
struct ForeignTensor {
    struct Part {
        const TorchFile* file;
        const StoredTensor* tensor;
    };
    weights::TensorSpec spec = {};
    std::vector<Part> parts = {};
    Join join = Join::kRows;
    // Above 0: each of so many heads has the rows of a rotated pair next to one another (Meta's order); the model wants
    // all first halves and then all second halves.
    std::int64_t rotary_heads = 0;

    std::int64_t rows() const { return spec.shape.empty() ? 1 : spec.shape.front(); }
    std::int64_t columns() const { return spec.shape.size() < 2 ? 1 : spec.shape.back(); }
};

// A model as another program left it: checked whole, before the first value is read.
struct ForeignModel {
    std::string config;  // the text of config.json, or of an adapter's adapter_config.json
    std::deque<TorchFile> files;
    std::vector<ForeignTensor> tensors;
};

// The spec's tensor from these parts, with their dtype; checks that it is one of weights and that the shapes add up.
Result<ForeignTensor> join_parts(weights::TensorSpec spec, std::vector<ForeignTensor::Part> parts, Join join);

// The tensors that the model of a config.json has. Errors name `config_path`.
struct ExpectedModel {
    std::vector<weights::TensorSpec> tensors;
    std::vector<std::string> ignorable;
};
Result<ExpectedModel> expected_model(const std::string& config, const std::filesystem::path& config_path);

// Rows [begin, end) of a tensor as fp32 into out. The error names tensor and file.
Status read_rows(const ForeignTensor& tensor, std::int64_t begin, std::int64_t end, std::span<float> out);

// The names in a directory. The error names it.
Result<std::set<std::string>> file_names_in(const std::filesystem::path& directory);

Result<ForeignModel> open_pytorch_bin(const ImportOptions& options);   // Hugging Face's layout
Result<ForeignModel> open_consolidated(const ImportOptions& options);  // Meta's
Result<ForeignModel> open_adapter_bin(const ImportOptions& options);   // peft's adapter_model.bin

}  // namespace atl::importer
