#include "trainer/parallel/gather_to_rank0.h"

#include <algorithm>
#include <utility>

#include "trainer/weights/storage.h"

namespace atl::parallel {

Status write_outcome(Status status) {
    if (status.ok() || status.error().code != ErrorCode::kResourceExhausted) return status;
    return Error{ErrorCode::kInternal, status.error().message, status.error().field};
}

GatherToRank0::GatherToRank0(kernels::Backend& backend, comm::Comm& world, ParameterStore& store,
                             ParameterStore::Saved saved)
    : backend_(backend), world_(world), store_(store), saved_(saved) {}

// Widening patterns what is not finite for those who take the values.
Status GatherToRank0::read(std::size_t unit, std::int64_t begin, std::span<float> values) {
    const tensor::DType dtype = store_.saved_dtype(saved_, unit);
    stored_.resize(static_cast<std::size_t>(tensor::size_bytes(dtype, std::ssize(values))));
    ATOLL_RETURN_IF_ERROR(store_.read(backend_, saved_, unit, begin - store_.saved_range(saved_, unit).begin, stored_));
    weights::widen(weights::file_dtype(dtype), stored_, values);
    return {};
}

void GatherToRank0::gather_slice(const TensorHolder& holder, std::int64_t begin, std::span<float> values) {
    const Mesh& mesh = store_.layout().mesh;
    const std::int64_t first = holder.offset + begin, end = first + std::ssize(values);
    for (std::int64_t at = first; at < end;) {
        const std::int64_t shard = at / holder.shard;
        const std::int64_t count = std::min((shard + 1) * holder.shard, end) - at;
        const int owner = mesh.rank_of({.shard = static_cast<int>(shard) / mesh.context,
                                        .context = static_cast<int>(shard) % mesh.context,
                                        .tensor = holder.tensor,
                                        .stage = holder.stage});
        const auto part = values.subspan(static_cast<std::size_t>(at - first), static_cast<std::size_t>(count));
        if (world_.rank() == owner && status_.ok()) status_ = read(holder.unit, at, part);
        world_.send(std::as_writable_bytes(part), owner, 0);
        at += count;
    }
}

Status GatherToRank0::gather(const PlacedTensor& tensor, const std::function<void(std::span<const float>)>& take) {
    status_ = {};
    for (std::int64_t begin = 0; begin < tensor.element_count; begin += kPieceElements) {
        const std::int64_t end = std::min(begin + kPieceElements, tensor.element_count);
        piece_.resize(static_cast<std::size_t>(end - begin));
        for (const TensorHolder& holder : tensor.holders) {
            const std::int64_t from = holder.slice.elements_before(begin);
            const std::int64_t count = holder.slice.elements_before(end) - from;
            if (tensor.holders.size() == 1) {
                gather_slice(holder, from, piece_);
                continue;
            }
            if (count == 0) continue;
            slice_.resize(static_cast<std::size_t>(count));
            gather_slice(holder, from, slice_);
            for (const model::SliceRun& run : model::runs_of(holder.slice, from, count))
                std::copy_n(slice_.begin() + run.at, run.count, piece_.begin() + (run.in_matrix - begin));
        }
        if (world_.rank() == 0) take(piece_);
    }
    return std::exchange(status_, {});
}

}  // namespace atl::parallel
