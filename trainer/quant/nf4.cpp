#include "trainer/quant/nf4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "shared/base/check.h"

namespace atl::quant {
namespace {

// Where a value is nearer to the next code than to this one.
template <std::size_t kCount>
std::array<float, kCount - 1> midpoints(const std::array<float, kCount>& values) {
    std::array<float, kCount - 1> bounds{};
    for (std::size_t i = 0; i + 1 < kCount; ++i) bounds[i] = (values[i] + values[i + 1]) / 2;
    return bounds;
}

// The index of the nearest code; a tie goes to the lower one.
template <std::size_t kBounds>
std::uint8_t nearest(const std::array<float, kBounds>& bounds, float value) {
    return static_cast<std::uint8_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

float largest_magnitude(std::span<const float> values) {
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    return largest;
}

// torch.linspace(0.1, 1, count) in fp32: from both ends to the middle, each rounded once.
float linspace(int index, int count) {
    const float step = (1.0F - 0.1F) / static_cast<float>(count - 1);
    return index < count / 2 ? std::fma(step, static_cast<float>(index), 0.1F)
                             : std::fma(-step, static_cast<float>(count - 1 - index), 1.0F);
}

// Seven decades below 1, each cut finer than the one before it, with both signs; and 0 and 1.
std::array<float, 256> make_dynamic_values() {
    constexpr std::array<float, 7> kDecades = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
    std::array<float, 256> values{};
    std::size_t at = 0;
    for (int decade = 0; decade < 7; ++decade) {
        const int bounds = (1 << decade) + 1;
        for (int i = 0; i + 1 < bounds; ++i) {
            const float mean = (linspace(i, bounds) + linspace(i + 1, bounds)) / 2;
            values[at++] = kDecades[static_cast<std::size_t>(decade)] * mean;
            values[at++] = -kDecades[static_cast<std::size_t>(decade)] * mean;
        }
    }
    values[at++] = 0;
    values[at++] = 1;
    std::ranges::sort(values);
    return values;
}

float read_float(const std::byte* storage, std::int64_t at) {
    float value = 0;
    std::memcpy(&value, storage + at, sizeof value);
    return value;
}

void write_float(std::span<std::byte> storage, std::int64_t at, float value) {
    std::memcpy(storage.data() + at, &value, sizeof value);
}

}  // namespace

// The quantiles of a normal distribution that QLoRA's appendix E lists.
const std::array<float, 16> kNf4Values = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

const std::array<float, 256>& dynamic_values() {
    static const std::array<float, 256> values = make_dynamic_values();
    return values;
}

Nf4Layout::Nf4Layout(std::int64_t count)
    : blocks((count + kNf4Block - 1) / kNf4Block),
      scale_blocks((blocks + kNf4ScaleBlock - 1) / kNf4ScaleBlock),
      magnitudes(4),
      scales(magnitudes + 4 * scale_blocks),
      codes(scales + blocks),
      size((codes + (count + 1) / 2 + kStorageBytes - 1) / kStorageBytes * kStorageBytes) {}

Nf4Quantizer::Nf4Quantizer(std::int64_t count, TakeBytes take)
    : layout_(count), take_(std::move(take)), codes_end_(layout_.codes) {
    scales_.reserve(static_cast<std::size_t>(layout_.blocks));
}

void Nf4Quantizer::append(std::span<const float> values) {
    constexpr auto kBlock = static_cast<std::size_t>(kNf4Block);
    while (!values.empty()) {
        const std::size_t count = std::min(kBlock - pending_.size(), values.size());
        if (count == kBlock) {
            quantize_block(values.first(count));
        } else {
            pending_.insert(pending_.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
        }
        values = values.subspan(count);
        if (pending_.size() < kBlock) continue;
        quantize_block(pending_);
        pending_.clear();
    }
    hand_over_codes();
}

void Nf4Quantizer::quantize_block(std::span<const float> values) {
    static const std::array<float, 15> bounds = midpoints(kNf4Values);
    const float scale = largest_magnitude(values);
    const float inverse = 1.0F / std::max(scale, 1e-38F);
    const std::size_t first = codes_.size();
    codes_.resize(first + (values.size() + 1) / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto code = static_cast<std::byte>(nearest(bounds, std::clamp(values[i] * inverse, -1.0F, 1.0F)));
        codes_[first + i / 2] |= i % 2 == 0 ? code << 4 : code;
    }
    scales_.push_back(scale);
}

void Nf4Quantizer::hand_over_codes() {
    if (codes_.empty()) return;
    take_(codes_end_, codes_);
    codes_end_ += std::ssize(codes_);
    codes_.clear();
}

void Nf4Quantizer::finish() {
    static const std::array<float, 255> bounds = midpoints(dynamic_values());
    if (!pending_.empty()) quantize_block(pending_);
    check(static_cast<std::int64_t>(scales_.size()) == layout_.blocks, "NF4: values are missing or too many");
    codes_.resize(static_cast<std::size_t>(layout_.size - codes_end_));  // with the padding
    hand_over_codes();
    std::vector<std::byte> head(static_cast<std::size_t>(layout_.codes));
    double sum = 0;
    for (const float scale : scales_) sum += static_cast<double>(scale);
    const auto mean = static_cast<float>(sum / static_cast<double>(std::max<std::int64_t>(1, layout_.blocks)));
    write_float(head, 0, mean);
    for (float& scale : scales_) scale -= mean;
    for (std::int64_t block = 0; block < layout_.scale_blocks; ++block) {
        const auto begin = static_cast<std::size_t>(block * kNf4ScaleBlock);
        const auto part = std::span(scales_).subspan(
            begin, std::min(static_cast<std::size_t>(kNf4ScaleBlock), scales_.size() - begin));
        const float magnitude = largest_magnitude(part);
        write_float(head, layout_.magnitudes + 4 * block, magnitude);
        for (std::size_t i = 0; i < part.size(); ++i) {
            const float scaled = magnitude > 0 ? part[i] / magnitude : 0.0F;
            head[static_cast<std::size_t>(layout_.scales) + begin + i] =
                static_cast<std::byte>(nearest(bounds, scaled));
        }
    }
    take_(0, head);
}

float nf4_scale(const std::byte* storage, const Nf4Layout& layout, std::int64_t block) {
    const auto code = std::to_integer<std::size_t>(storage[layout.scales + block]);
    const float magnitude = read_float(storage, layout.magnitudes + 4 * (block / kNf4ScaleBlock));
    return dynamic_values()[code] * magnitude + read_float(storage, 0);
}

void dequantize_nf4(std::span<const std::byte> storage, std::int64_t count, std::int64_t begin, std::span<float> out) {
    const Nf4Layout layout(count);
    const std::byte* const codes = storage.data() + layout.codes;
    std::int64_t block = -1;
    float scale = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::int64_t at = begin + static_cast<std::int64_t>(i);
        if (at / kNf4Block != block) {
            block = at / kNf4Block;
            scale = nf4_scale(storage.data(), layout, block);
        }
        const auto pair = std::to_integer<unsigned>(codes[at / 2]);
        out[i] = kNf4Values[at % 2 == 0 ? pair >> 4 : pair & 15U] * scale;
    }
}

}  // namespace atl::quant
