#pragma once

#include <string_view>

#include "shared/safetensors/safetensors.h"

// Inside shared/safetensors only.
namespace atl::safetensors {

// The JSON part of a header: every tensor alone is sound (dtype, shape, end - begin = bytes of the shape), no key comes
// twice. Whether the tensors fit together and into the file is the caller's to check. One pass, no tree in memory.
Result<Header> parse_header_json(std::string_view json);

}  // namespace atl::safetensors
