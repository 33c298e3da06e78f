#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "trainer/kernels/backend.h"

namespace atl::parallel {

// Where the host sends from and receives into, of one transfer of tensors: where it reaches them (device memory that is
// its own, or pinned memory), themselves, else pinned memory, what is sent at its front and what arrives at its back.
class Staging {
  public:
    Staging() = default;
    // `of` is whose transfer it is ("layers.17"), for a message; it outlives it.
    Staging(kernels::Backend& backend, const tensor::Tensor& pinned, std::string_view of)
        : backend_(&backend), pinned_(pinned), of_(of) {}
    // The pinned memory that a tensor of so many bytes takes, sent or received.
    static std::int64_t need_bytes(const kernels::Backend& backend, std::int64_t bytes,
                                   kernels::Space space = kernels::Space::kDevice);

    // What the host sends, once the device is done with it. So it is with what it was asked for before: nothing reads
    // or writes any more what the transfer will bring, nor what an earlier one left here.
    std::span<const std::byte> leave_device(const tensor::Tensor& from,
                                            kernels::Space space = kernels::Space::kDevice) const;
    // The same of `count` elements in each of `parts` equal parts of a tensor, from element `begin` of the part on:
    // where the host reaches the device's memory, what lies from the first to the last of them, else one after another.
    std::span<const std::byte> leave_device(const tensor::Tensor& whole, int parts, std::int64_t begin,
                                            std::int64_t count) const;
    // Where what arrives for `to` lies, and its way into the device.
    std::span<std::byte> landing(const tensor::Tensor& to, kernels::Space space = kernels::Space::kDevice) const;
    void receive(const tensor::Tensor& to, kernels::Space space = kernels::Space::kDevice) const;

  private:
    tensor::Tensor front(std::int64_t begin, std::int64_t bytes) const;
    tensor::Tensor back(std::int64_t bytes) const;

    kernels::Backend* backend_ = nullptr;
    tensor::Tensor pinned_;  // bytes; empty: the host reaches what is exchanged
    std::string_view of_;
};

}  // namespace atl::parallel
