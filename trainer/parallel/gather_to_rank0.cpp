#include "trainer/parallel/gather_to_rank0.h"

#include <algorithm>

#include "trainer/weights/storage.h"

namespace atl::parallel {

Status write_outcome(Status status) {
    if (status.ok() || status.error().code != ErrorCode::kResourceExhausted) return status;
    return Error{ErrorCode::kInternal, status.error().message, status.error().field};
}

GatherToRank0::GatherToRank0(kernels::Backend& backend, comm::Comm& comm)
    : backend_(backend),
      comm_(comm),
      buffer_(static_cast<std::size_t>(tensor::size_bytes(tensor::DType::kF32, kPieceElements))) {}

Status GatherToRank0::gather_bytes(ParameterStore& store, ParameterStore::Saved saved, std::size_t unit,
                                   const std::function<void(std::span<const std::byte>)>& take) {
    const ShardSpec& spec = store.shard_spec(unit);
    const std::int64_t width = tensor::size_bytes(store.saved_dtype(saved, unit));
    const bool sharded = store.saved_range(saved, unit).count < spec.whole;
    Status status;
    for (std::int64_t at = 0; at < spec.element_count;) {
        const std::int64_t owner = sharded ? at / spec.shard : 0;
        const std::int64_t end = sharded ? std::min((owner + 1) * spec.shard, spec.element_count) : spec.element_count;
        const std::int64_t count = std::min(kPieceElements, end - at);
        const std::span<std::byte> piece = std::span(buffer_).first(static_cast<std::size_t>(width * count));
        if (comm_.rank() == owner && status.ok()) {
            status = store.read(backend_, saved, unit, at - owner * spec.shard, piece);
        }
        comm_.send(piece, static_cast<int>(owner), 0);
        if (comm_.rank() == 0) take(piece);
        at += count;
    }
    return status;
}

Status GatherToRank0::gather_weights(ParameterStore& store, std::size_t unit,
                                     const std::function<void(std::span<const float>)>& take) {
    const tensor::DType dtype = store.saved_dtype(ParameterStore::Saved::kExactWeights, unit);
    const auto width = static_cast<std::size_t>(tensor::size_bytes(dtype));
    return gather_bytes(store, ParameterStore::Saved::kExactWeights, unit, [&](std::span<const std::byte> piece) {
        widened_.resize(piece.size() / width);
        weights::widen(weights::file_dtype(dtype), piece,
                       widened_);  // who takes the values patterns for those not finite
        take(widened_);
    });
}

}  // namespace atl::parallel
