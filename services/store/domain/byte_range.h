#pragma once

#include <cstdint>
#include <string>

#include "shared/base/result.h"

namespace atl::store {

// The one byte range of a "bytes=…" header over `size` bytes, {0, size} if there is none or it is not understood.
// kInvalidArgument if it lies outside.
struct ByteRange {
    std::uint64_t begin;
    std::uint64_t end;  // exclusive
};
Result<ByteRange> parse_range(const std::string& header, std::uint64_t size);

}  // namespace atl::store
