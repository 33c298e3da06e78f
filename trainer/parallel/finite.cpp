#include "trainer/parallel/finite.h"

#include <algorithm>
#include <vector>

#include "trainer/parallel/sharding.h"
#include "trainer/weights/storage.h"

namespace atl::parallel {

bool all_finite(kernels::Backend& backend, const tensor::Tensor& values) {
    constexpr std::int64_t kPieceElements = std::int64_t{1} << 18;
    const std::int64_t count = values.element_count();
    const tensor::Tensor flat = values.reshape({count});
    std::vector<std::byte> bytes;
    std::vector<float> wide;
    for (std::int64_t at = 0; at < count; at += kPieceElements) {
        const tensor::Tensor piece = flat_range(flat, at, std::min(kPieceElements, count - at));
        bytes.resize(static_cast<std::size_t>(piece.byte_count()));
        wide.resize(static_cast<std::size_t>(piece.element_count()));
        backend.copy_to_host(piece, bytes.data());
        if (!weights::widen(weights::file_dtype(piece.dtype()), bytes, wide)) return false;
    }
    return true;
}

}  // namespace atl::parallel
