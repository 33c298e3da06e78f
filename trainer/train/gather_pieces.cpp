#include "trainer/train/gather_pieces.h"

#include <algorithm>

#include "trainer/train/storage.h"

namespace atl::train {

Status write_outcome(Status status) {
    if (status.ok() || status.error().code != ErrorCode::kResourceExhausted) return status;
    return Error{ErrorCode::kInternal, status.error().message, status.error().field};
}

PieceGatherer::PieceGatherer(kernels::Backend& backend, comm::Comm& comm)
    : backend_(backend),
      comm_(comm),
      buffer_(static_cast<std::size_t>(tensor::size_bytes(tensor::DType::kF32, kPieceElements))) {}

void PieceGatherer::gather_bytes(const tensor::Tensor& kept, const GroupCut& cut,
                                 const std::function<void(std::span<const std::byte>)>& take) {
    const bool sharded = kept.element_count() < cut.whole;
    for (std::int64_t at = 0; at < cut.element_count;) {
        const std::int64_t owner = sharded ? at / cut.shard : 0;
        const std::int64_t end = sharded ? std::min((owner + 1) * cut.shard, cut.element_count) : cut.element_count;
        const std::int64_t count = std::min(kPieceElements, end - at);
        const std::span<std::byte> piece =
            std::span(buffer_).first(static_cast<std::size_t>(tensor::size_bytes(kept.dtype(), count)));
        if (comm_.rank() == owner) {
            backend_.copy_to_host(flat_range(kept, at - owner * cut.shard, count), piece.data());
        }
        if (owner != 0) comm_.broadcast(piece, static_cast<int>(owner));
        if (comm_.rank() == 0) take(piece);
        at += count;
    }
}

void PieceGatherer::gather(const tensor::Tensor& kept, const GroupCut& cut,
                           const std::function<void(std::span<const float>)>& take) {
    const checkpoint::DType dtype = file_dtype(kept.dtype());
    const auto width = static_cast<std::size_t>(tensor::size_bytes(kept.dtype()));
    gather_bytes(kept, cut, [&](std::span<const std::byte> piece) {
        widened_.resize(piece.size() / width);
        checkpoint::widen(dtype, piece, widened_);  // who takes the values looks for those that are not finite
        take(widened_);
    });
}

}  // namespace atl::train
