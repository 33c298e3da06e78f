#include "trainer/kernels/cpu/tile.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "shared/base/check.h"
#include "trainer/kernels/cpu/widen.h"

namespace atl::kernels::cpu {
namespace {

// A buffer for each of the tiles that a thread has at once, as long as the longest so far.
constexpr std::size_t kTilesMax = 8;
struct TileBuffers {
    std::array<std::vector<float>, kTilesMax> buffers;
    std::size_t used = 0;
};
thread_local TileBuffers tile_buffers;

}  // namespace

Tile::Tile(const tensor::Tensor& tensor, std::int64_t begin, std::int64_t count, bool reads, bool writes)
    : dtype_(tensor.dtype()), count_(count), writes_(writes) {
    if (tensor.empty()) return;
    if (dtype_ == tensor::DType::kF32) {
        data_ = tensor.f32() + begin;
        return;
    }
    check(tile_buffers.used < kTilesMax, "a thread has too many tiles at once");
    std::vector<float>& buffer = tile_buffers.buffers[tile_buffers.used++];
    if (std::ssize(buffer) < count) buffer.resize(static_cast<std::size_t>(count));
    data_ = buffer.data();
    kept_ = static_cast<std::byte*>(tensor.data()) + tensor::size_bytes(dtype_, begin);
    if (reads) widen(dtype_, kept_, 0, count, data_);
}

Tile::~Tile() {
    if (kept_ == nullptr) return;
    if (writes_) narrow(data_, dtype_, kept_, 0, count_);
    --tile_buffers.used;
}

}  // namespace atl::kernels::cpu
