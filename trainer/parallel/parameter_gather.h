#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/parallel/collectives.h"
#include "trainer/parallel/parameter_store.h"
#include "trainer/parallel/two_ended_buffer.h"

namespace atl::parallel {

// Lends each block its units' whole weights. Where every rank keeps them whole, those themselves; under full_shard
// they are gathered into one of two slots, so that the next block's gather runs while this block computes. Weights that
// are offloaded come into these slots, too: gathered from the ranks' pinned memory, or copied where a rank keeps them
// whole.
class ParameterGather {
  public:
    static ParameterGather lay_out(const Arenas& arenas, const ParameterStore& store);

    // The whole weights of the block's units, in the order of Block::units(); valid until a block is acquired or
    // prefetched that is not its neighbour, or any block twice over. Waits for a gather that prefetch() began, or
    // gathers now.
    std::span<const Tensor> acquire(Collectives& ranks, std::size_t block);
    // Begins the gather of a neighbour of the block that was acquired last, unless its weights are there. Overwrites
    // the slot that was not acquired last.
    void prefetch(Collectives& ranks, std::size_t block);
    // The weights have changed: nothing gathered is worth anything any more.
    void invalidate();

  private:
    static constexpr std::size_t kNoBlock = static_cast<std::size_t>(-1);
    struct Slot {
        std::size_t block = kNoBlock;
        std::vector<Tensor> weights;                   // views of the buffer
        std::vector<Collectives::Transfer> transfers;  // under way
    };
    Slot* find(std::size_t block);
    void begin(Collectives& ranks, Slot& slot, std::size_t block);
    Collectives::Transfer start(Collectives& ranks, std::size_t unit, const Tensor& whole, const Tensor& pinned) const;
    void finish(Collectives& ranks, Slot& slot) const;

    const ParameterStore* store_ = nullptr;
    TwoEndedBuffer buffer_, pinned_;             // of bytes: the weights; what their gathers take
    std::vector<std::int64_t> pinned_bytes_;     // that the gather of a unit takes
    std::array<Slot, 2> slots_;                  // at the buffers' front and at their back
    std::size_t last_ = 0;                       // the slot that was acquired last
    std::vector<std::vector<Tensor>> resident_;  // by block, when nothing needs gathering
};

}  // namespace atl::parallel
