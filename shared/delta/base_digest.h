#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shared/base/result.h"
#include "shared/safetensors/file.h"

// By what a delta knows its base again where nobody gives it a name.
namespace atl::delta {

// The sha256 of one tensor's dtype, shape and bytes. on_read, if given, gets the bytes of each piece that is read.
Result<std::string> tensor_sha256(const safetensors::File& file, const safetensors::TensorInfo& tensor,
                                  const std::function<void(std::int64_t bytes)>& on_read = {});

// That of all tensors of a model: of their names in order, each with its own digest, however they lie in files.
Result<std::string> model_sha256(const safetensors::Model& model);

}  // namespace atl::delta
