#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/model_config/tensors.h"
#include "shared/safetensors/safetensors.h"

namespace atl::adapter {

// The adapter_model.safetensors that the rounds of a job begin with, as peft begins one: A uniform in ±1/√in
// (kaiming_uniform with a = √5), B zero, so that it changes nothing. Its bytes depend on the seed, the tensors and the
// type alone. Never in memory as a whole. Thread-safe.
class InitialAdapter {
  public:
    // `tensors`: those of tensors_on(). `dtype`: F32, F16 or BF16. `quantization`: of the model that it is trained on.
    InitialAdapter(const std::vector<model_config::TensorSpec>& tensors, safetensors::DType dtype, std::uint64_t seed,
                   const std::string& quantization = "none");
    std::uint64_t size() const { return size_; }
    // The file's bytes [offset, offset + into.size()); both at a multiple of 8, or the file's end.
    void read(std::uint64_t offset, std::span<std::byte> into) const;

  private:
    void fill(const safetensors::TensorInfo& tensor, std::uint64_t first, std::uint64_t count, std::byte* out) const;

    std::vector<safetensors::TensorInfo> tensors_;
    safetensors::DType dtype_;
    std::uint64_t seed_;
    std::string head_;
    std::uint64_t size_;
};

}  // namespace atl::adapter
