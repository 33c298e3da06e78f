#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/parallel/parameter_store.h"
#include "trainer/parallel/placed_tensors.h"

namespace atl::parallel {

// The outcome of writing a file, for all ranks to agree on. Of a full disk the code is changed: among ranks that of too
// much asked for means memory, and decides what the program exits with.
Status write_outcome(Status status);

// Hands the tensors of a model's files to rank 0 piece by piece, whoever keeps them, so that no rank ever holds more
// than it keeps and some pieces.
class GatherToRank0 {
  public:
    // `world`: all ranks of the run. `saved`: what of the tensors.
    GatherToRank0(kernels::Backend& backend, comm::Comm& world, ParameterStore& store,
                  ParameterStore::Saved saved = ParameterStore::Saved::kExactWeights);

    // On rank 0, take() gets what is saved of a tensor in order, widened to fp32. Every rank takes part, also after
    // a failure of its own or of rank 0, which the others cannot see. Errors are this rank's alone: of reading what is
    // offloaded.
    Status gather(const PlacedTensor& tensor, const std::function<void(std::span<const float>)>& take);

    static constexpr std::int64_t kPieceElements = std::int64_t{1} << 17;  // 512 KiB of fp32

  private:
    // Elements [begin, begin + values.size()) of what a holder keeps, to rank 0.
    void gather_slice(const TensorHolder& holder, std::int64_t begin, std::span<float> values);
    Status read(std::size_t unit, std::int64_t begin, std::span<float> values);

    kernels::Backend& backend_;
    comm::Comm& world_;
    ParameterStore& store_;
    ParameterStore::Saved saved_;
    std::vector<float> piece_, slice_;
    std::vector<std::byte> stored_;
    Status status_;
};

}  // namespace atl::parallel
