#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "trainer/weights/load.h"

namespace atl::importer {

// A tensor of a PyTorch file: a piece of one of its storages, row-major without gaps.
struct StoredTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    weights::DType dtype = weights::DType::kF32;
    std::string storage;  // names the storage's bytes
    std::int64_t storage_elements = 0;
    std::int64_t begin = 0;          // elements from the start of the storage
    std::int64_t element_count = 0;  // begin + element_count ≤ storage_elements
};

// The tensors of a data.pkl whose value is a dictionary of tensors by name, in its order. kInvalidArgument says where
// and what: anything else, a class or an opcode that tensors do not need (nothing is executed), a tensor outside of its
// storage or with gaps, a name that comes twice.
Result<std::vector<StoredTensor>> read_state_dict(std::span<const std::byte> pickle);

}  // namespace atl::importer
