#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/parallel/parameter_store.h"

namespace atl::parallel {

// The outcome of writing a file, for all ranks to agree on. Of a full disk the code is changed: among ranks that of too
// much asked for means memory, and decides what the program exits with.
Status write_outcome(Status status);

// Hands a unit's flat buffer to rank 0 piece by piece, whoever keeps it, so that no rank ever holds more than it
// keeps and one piece.
class GatherToRank0 {
  public:
    GatherToRank0(kernels::Backend& backend, comm::Comm& comm);

    // On rank 0, take() gets the exact weights of the unit's real elements (without padding), widened to fp32, in
    // order. Every rank takes part, also after a failure of its own or of rank 0, which the others cannot see. Errors
    // are this rank's alone: of reading what is offloaded.
    Status gather_weights(ParameterStore& store, std::size_t unit,
                          const std::function<void(std::span<const float>)>& take);

    static constexpr std::int64_t kPieceElements = std::int64_t{1} << 17;  // 512 KiB of fp32

  private:
    Status gather_bytes(ParameterStore& store, ParameterStore::Saved saved, std::size_t unit,
                        const std::function<void(std::span<const std::byte>)>& take);

    kernels::Backend& backend_;
    comm::Comm& comm_;
    std::vector<std::byte> buffer_;
    std::vector<float> widened_;  // on rank 0
};

}  // namespace atl::parallel
