#include "trainer/train/gather_pieces.h"

#include <algorithm>

namespace atl::train {

PieceGatherer::PieceGatherer(kernels::Backend& backend, comm::Comm& comm)
    : backend_(backend), comm_(comm), buffer_(static_cast<std::size_t>(kPieceElements)) {}

void PieceGatherer::gather(const tensor::Tensor& kept, const GroupCut& cut,
                           const std::function<void(std::span<const float>)>& take) {
    const bool sharded = kept.element_count() < cut.whole;
    for (std::int64_t at = 0; at < cut.element_count;) {
        const std::int64_t owner = sharded ? at / cut.shard : 0;
        const std::int64_t end = sharded ? std::min((owner + 1) * cut.shard, cut.element_count) : cut.element_count;
        const std::int64_t count = std::min(kPieceElements, end - at);
        const std::span<float> values = std::span(buffer_).first(static_cast<std::size_t>(count));
        if (comm_.rank() == owner) {
            backend_.copy_to_host(flat_range(kept, at - owner * cut.shard, count), values.data());
        }
        if (owner != 0) comm_.broadcast(std::as_writable_bytes(values), static_cast<int>(owner));
        if (comm_.rank() == 0) take(values);
        at += count;
    }
}

}  // namespace atl::train
