#include "shared/model_config/token_counts.h"

#include "shared/model_config/tensors.h"

namespace atl::model_config {

bool has_token_rows(std::string_view name, const std::vector<std::int64_t>& shape) {
    return shape.size() == 2 && (name == kHeadWeight || name.ends_with("embed_tokens.weight"));
}

Status check_token_counts(const safetensors::Header& header, std::int64_t tokens) {
    const bool is_one = header.tensors.size() == 1 && header.tensors.front().name == kTokenCounts &&
                        header.tensors.front().dtype == safetensors::DType::kF32;
    if (!is_one)
        return invalid_argument(kTokenCountsFile,
                                std::string("must hold one tensor \"") + kTokenCounts + "\" of F32 and no other");
    const std::vector<std::int64_t>& shape = header.tensors.front().shape;
    if (shape == std::vector<std::int64_t>{tokens}) return {};
    return invalid_argument(kTokenCountsFile, "has counts of the shape " + shape_text(shape) + ", but the model has " +
                                                  std::to_string(tokens) + " tokens");
}

}  // namespace atl::model_config
