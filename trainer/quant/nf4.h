#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

// NF4 with double quantisation (QLoRA: Dettmers, Pagnoni, Holtzman, Zettlemoyer, arXiv:2305.14314), with the codes and
// rules of the bitsandbytes library. A tensor's elements in row-major order make blocks of 64; an element is the index
// of one of 16 values, times the largest magnitude of its block. Those magnitudes, less their mean, are in turn 8-bit
// indices of a "dynamic" code (Dettmers, arXiv:1511.04561), times the largest magnitude of 256 of them.
namespace atl::quant {

inline constexpr std::int64_t kNf4Block = 64;
inline constexpr std::int64_t kNf4ScaleBlock = 256;
// What lies after a tensor's storage is as aligned as it was: to what a GPU reads at once.
inline constexpr std::int64_t kStorageBytes = 16;

extern const std::array<float, 16> kNf4Values;   // ascending
const std::array<float, 256>& dynamic_values();  // ascending

// Where the parts of a tensor of `count` elements lie, in bytes from the start of its storage: one fp32 (the mean),
// fp32 magnitudes of the scale blocks, a byte a block, and half a byte an element, the first in the high bits.
struct Nf4Layout {
    explicit Nf4Layout(std::int64_t count);
    std::int64_t blocks;
    std::int64_t scale_blocks;
    std::int64_t magnitudes;  // fp32 [scale_blocks]; the mean is at 0
    std::int64_t scales;      // bytes [blocks]
    std::int64_t codes;       // bytes [count / 2]
    std::int64_t size;        // a multiple of kStorageBytes
};

// Gets bytes of a tensor's storage, from `at` on.
using TakeBytes = std::function<void(std::int64_t at, std::span<const std::byte> bytes)>;

// Quantises a tensor whose values come in order, in pieces of any size, and hands over its storage: every byte once,
// the codes as they are made. It keeps five bytes a block. A block of zeros gives zeros.
class Nf4Quantizer {
  public:
    Nf4Quantizer(std::int64_t count, TakeBytes take);
    void append(std::span<const float> values);
    void finish();  // after the last value: quantises the blocks' magnitudes

  private:
    void quantize_block(std::span<const float> values);
    void hand_over_codes();
    Nf4Layout layout_;
    TakeBytes take_;
    std::vector<float> pending_;    // of a block that is not complete
    std::vector<float> scales_;     // of the blocks so far
    std::vector<std::byte> codes_;  // not handed over yet
    std::int64_t codes_end_;        // of those that are, in the storage
};

// Elements [begin, begin + out.size()) of a tensor of `count` elements.
void dequantize_nf4(std::span<const std::byte> storage, std::int64_t count, std::int64_t begin, std::span<float> out);
// The factor of a block.
float nf4_scale(const std::byte* storage, const Nf4Layout& layout, std::int64_t block);

}  // namespace atl::quant
