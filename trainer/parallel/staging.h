#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/kernels/backend.h"

namespace atl::parallel {

// Where the host sends from and receives into, of one transfer of tensors: where it reaches them (device memory that is
// its own, or pinned memory), themselves, else pinned memory, made when it is first needed. Calls are of one transfer
// at a time.
class Staging {
  public:
    // What the host sends, once the device is done with it. So it is with what it was asked for before: nothing reads
    // or writes any more what the transfer will bring, nor what an earlier one left here.
    std::span<const std::byte> leave_device(kernels::Backend& backend, const tensor::Tensor& from,
                                            kernels::Space space = kernels::Space::kDevice);
    // The same of `count` elements in each of `parts` equal parts of a tensor, from element `begin` of the part on:
    // where the host reaches the device's memory, what lies from the first to the last of them, else one after another.
    std::span<const std::byte> leave_device(kernels::Backend& backend, const tensor::Tensor& whole, int parts,
                                            std::int64_t begin, std::int64_t count);
    // Where what arrives for `to` lies, and its way into the device.
    std::span<std::byte> landing(kernels::Backend& backend, const tensor::Tensor& to,
                                 kernels::Space space = kernels::Space::kDevice);
    void receive(kernels::Backend& backend, const tensor::Tensor& to,
                 kernels::Space space = kernels::Space::kDevice) const;

  private:
    tensor::Memory sent_, received_;
};

}  // namespace atl::parallel
