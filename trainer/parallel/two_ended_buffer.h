#pragma once

#include <cstdint>
#include <vector>

#include "trainer/parallel/sharding.h"
#include "trainer/tensor/arena.h"

namespace atl::parallel {

// Memory that the blocks of a model take in turn: one at its front, the next at its back. It has room for any two
// neighbours, not for the two largest blocks: those of the vocabulary, which layers lie between, are never there
// together.
class TwoEndedBuffer {
  public:
    enum class End : std::uint8_t { kFront, kBack };

    // elements[b] is what block b takes.
    static TwoEndedBuffer lay_out(tensor::Arena& arena, tensor::Category category, tensor::DType dtype,
                                  std::vector<std::int64_t> elements);

    // The block's elements at that end; aligned to tensor::kAlignmentBytes.
    tensor::Tensor at(End end, std::size_t block) const;
    // Whether both are there, at two ends.
    bool holds_both(std::size_t one, std::size_t other) const;

  private:
    std::vector<std::int64_t> elements_;  // of each block
    tensor::Tensor whole_;
};

}  // namespace atl::parallel
