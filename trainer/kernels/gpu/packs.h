#pragma once

#include <cstring>
#include <initializer_list>

#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/launch.h"

// Elements as kernels take them eight at a time, in accesses of 16 bytes.
namespace atl::kernels::gpu {

inline constexpr int kPack = 8;
inline constexpr int kPackAlignment = 16;  // bytes

// Neighbouring elements, in fp32.
template <int kCount>
struct Values {
    float at[kCount];
};

template <int kCount>
__device__ void add_to(Values<kCount>& values, const Values<kCount>& more) {
    ATOLL_UNROLL
    for (int i = 0; i < kCount; ++i) values.at[i] += more.at[i];
}

// 16 bytes as memory holds them.
struct alignas(16) Words {
    std::uint32_t at[4];
};

__device__ inline Words load_words(const void* from) {
    Words words;
#if defined(ATOLL_GPU_SHIM)
    check(reinterpret_cast<std::uintptr_t>(from) % kPackAlignment == 0, "a vector is read from an unaligned address");
    std::memcpy(&words, from, sizeof(words));
#elif defined(__HIP__)
    words = *static_cast<const Words*>(from);
#else  // the compiler takes a pointer that lies in memory for one of any address space, and a struct for four words
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
                 : "l"(from)
                 : "memory");
#endif
    return words;
}

__device__ inline void store_words(void* to, const Words& words) {
#if defined(ATOLL_GPU_SHIM)
    check(reinterpret_cast<std::uintptr_t>(to) % kPackAlignment == 0, "a vector is written to an unaligned address");
    std::memcpy(to, &words, sizeof(words));
#elif defined(__HIP__)
    *static_cast<Words*>(to) = words;
#else
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.at[0]), "r"(words.at[1]),
                 "r"(words.at[2]), "r"(words.at[3])
                 : "memory");
#endif
}

// kPack values to memory of the device.
__device__ inline void store_floats(float* to, const float* values) {
    ATOLL_UNROLL
    for (int half = 0; half < 2; ++half) {
        Words words;
        ATOLL_UNROLL
        for (int i = 0; i < 4; ++i) words.at[i] = __builtin_bit_cast(std::uint32_t, values[4 * half + i]);
        store_words(to + 4 * half, words);
    }
}

// Two values rounded to nearest even, the first in the low half.
__device__ inline std::uint32_t narrow_two_bf16(float first, float second) {
#if defined(__CUDACC__)
    std::uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
#else
    return numeric::narrow_bf16(first) | static_cast<std::uint32_t>(numeric::narrow_bf16(second)) << 16;
#endif
}
__device__ inline std::uint32_t narrow_two_f16(float first, float second) {
#if defined(__CUDACC__)
    std::uint32_t two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
#else
    return numeric::narrow_f16(first) | static_cast<std::uint32_t>(numeric::narrow_f16(second)) << 16;
#endif
}
__device__ inline float widen_f16(std::uint16_t half) {
#if defined(__CUDACC__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    return numeric::widen_f16(half);
#endif
}

// What the compiler knows of a tensor's format.
enum class Format : std::uint8_t { kF32, kBF16, kAny };

// A tensor whose elements are read and written kWidth at a time, 8 or 1, at indices that this divides. Raw is a pack as
// memory holds it: kernels first fetch all they need, and decode it when they use it, so that the loads overlap.
template <Format kFormat, int kWidth_>
class Packs : public Elements {
  public:
    static constexpr int kWidth = kWidth_;
    using Decoded = Values<kWidth>;
    struct Raw {
        Words words[kFormat == Format::kBF16 ? 1 : 2];
    };

    Packs() = default;
    explicit Packs(const tensor::Tensor& tensor) : Elements(tensor) {}

    __device__ bool is_wide() const {
        return kFormat == Format::kF32 || (kFormat == Format::kAny && Elements::is_wide());
    }
    __device__ Raw fetch(std::int64_t index) const {
        static_assert(kWidth == kPack);
        Raw raw{};
        std::byte* const from = place(index);
        raw.words[0] = load_words(from);
        if constexpr (kFormat != Format::kBF16) {
            if (is_wide()) raw.words[1] = load_words(from + sizeof(Words));
        }
        return raw;
    }
    __device__ Decoded decode(const Raw& raw) const {
        Decoded values;
        if (is_wide()) {
            ATOLL_UNROLL
            for (int i = 0; i < kPack; ++i) values.at[i] = as_float(raw.words[last(i / 4)].at[i % 4]);
        } else if (kFormat == Format::kBF16 || is_bf16()) {
            ATOLL_UNROLL
            for (int i = 0; i < kPack; ++i) {
                const std::uint32_t two = raw.words[0].at[i / 2];
                values.at[i] = as_float(i % 2 == 0 ? two << 16 : two & 0xffff0000U);
            }
        } else {
            ATOLL_UNROLL
            for (int i = 0; i < kPack; ++i)
                values.at[i] = widen_f16(static_cast<std::uint16_t>(raw.words[0].at[i / 2] >> (i % 2 * 16)));
        }
        return values;
    }
    __device__ Raw encode(const Decoded& values) const {
        Raw raw{};
        if (is_wide()) {
            ATOLL_UNROLL
            for (int i = 0; i < kPack; ++i)
                raw.words[last(i / 4)].at[i % 4] = __builtin_bit_cast(std::uint32_t, values.at[i]);
        } else if (kFormat == Format::kBF16 || is_bf16()) {
            ATOLL_UNROLL
            for (int i = 0; i < kPack; i += 2) raw.words[0].at[i / 2] = narrow_two_bf16(values.at[i], values.at[i + 1]);
        } else {
            ATOLL_UNROLL
            for (int i = 0; i < kPack; i += 2) raw.words[0].at[i / 2] = narrow_two_f16(values.at[i], values.at[i + 1]);
        }
        return raw;
    }
    __device__ void put(std::int64_t index, const Raw& raw) const {
        std::byte* const to = place(index);
        store_words(to, raw.words[0]);
        if constexpr (kFormat != Format::kBF16) {
            if (is_wide()) store_words(to + sizeof(Words), raw.words[1]);
        }
    }
    __device__ Decoded load_pack(std::int64_t index) const { return decode(fetch(index)); }
    __device__ void store_pack(std::int64_t index, const Decoded& values) const { put(index, encode(values)); }

  private:
    static constexpr int last(int word) { return kFormat == Format::kBF16 ? 0 : word; }
    __device__ static float as_float(std::uint32_t word) { return __builtin_bit_cast(float, word); }
    __device__ std::byte* place(std::int64_t index) const {
        return static_cast<std::byte*>(data()) + index * (is_wide() ? 4 : 2);
    }
};

// One element at a time: for widths and addresses that packs do not take.
template <>
class Packs<Format::kAny, 1> : public Elements {
  public:
    static constexpr int kWidth = 1;
    using Decoded = Values<1>;
    using Raw = Values<1>;

    Packs() = default;
    explicit Packs(const tensor::Tensor& tensor) : Elements(tensor) {}

    __device__ Raw fetch(std::int64_t index) const { return {load(index)}; }
    __device__ Decoded decode(const Raw& raw) const { return raw; }
    __device__ Raw encode(const Decoded& values) const { return {rounded(values.at[0])}; }
    __device__ void put(std::int64_t index, const Raw& raw) const { store(index, raw.at[0]); }
    __device__ Decoded load_pack(std::int64_t index) const { return {load(index)}; }
    __device__ void store_pack(std::int64_t index, const Decoded& values) const { store(index, values.at[0]); }
};

inline bool is_aligned(const tensor::Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data()) % kPackAlignment == 0;
}

// Calls body.operator()<P>() with the kind of Packs that all these tensors can be taken by. `columns` divides the
// indices of whatever packs they are taken by.
template <class Body>
void with_packs(std::int64_t columns, std::initializer_list<tensor::Tensor> tensors, const Body& body) {
    bool fits = columns % kPack == 0, is_bf16 = true, is_wide = true;
    for (const tensor::Tensor& one : tensors) {
        if (one.empty()) continue;
        fits = fits && is_aligned(one);
        is_bf16 = is_bf16 && one.dtype() == tensor::DType::kBF16;
        is_wide = is_wide && one.dtype() == tensor::DType::kF32;
    }
    if (!fits) {
        body.template operator()<Packs<Format::kAny, 1>>();
    } else if (is_bf16) {
        body.template operator()<Packs<Format::kBF16, kPack>>();
    } else if (is_wide) {
        body.template operator()<Packs<Format::kF32, kPack>>();
    } else {
        body.template operator()<Packs<Format::kAny, kPack>>();
    }
}

// Division of numbers below 2^31 by one divisor, without dividing (Granlund & Montgomery, PLDI 1994).
class Divider {
  public:
    explicit Divider(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
        check(divisor > 0 && divisor < (std::int64_t{1} << 31), "a divisor that does not fit");
        while ((std::uint64_t{1} << shift_) < divisor_) ++shift_;
        factor_ = static_cast<std::uint32_t>((std::uint64_t{1} << (31 + shift_)) / divisor_ + 1);
    }
    __device__ std::uint32_t quotient(std::uint32_t number) const {
        return static_cast<std::uint32_t>(static_cast<std::uint64_t>(number) * factor_ >> (31 + shift_));
    }

  private:
    std::uint32_t divisor_, factor_ = 0;
    int shift_ = 0;
};

// body(i) for each pack of the elements [first, end), a thread each.
template <class Body>
struct PerPack {
    std::int64_t first, end;
    int width;
    Body body;
    __device__ void operator()(const Block& block) const {
        block.each_alone([&](int thread) {
            const std::int64_t i = first + (block.number() * kThreads + thread) * width;
            if (i < end) body(i);
        });
    }
};
template <class P, class Body>
void launch_packs(cudaStream_t stream, std::int64_t first, std::int64_t end, const Body& body) {
    const std::int64_t packs = (end - first) / P::kWidth;
    launch(stream, (packs + kThreads - 1) / kThreads, PerPack<Body>{first, end, P::kWidth, body});
}

// Calls body.operator()<P>(first, end) for `count` elements of each of these tensors: for whole packs, and for what is
// left of a pack.
template <class Body>
void with_flat_packs(std::int64_t count, std::initializer_list<tensor::Tensor> tensors, const Body& body) {
    with_packs(kPack, tensors, [&]<class P>() {
        const std::int64_t whole = count / P::kWidth * P::kWidth;
        if (whole > 0) body.template operator()<P>(0, whole);
        if (whole < count) body.template operator()<Packs<Format::kAny, 1>>(whole, count);
    });
}

// body(row, column) for each pack of a matrix, a thread each.
template <class Body>
struct PerPackInRows {
    std::int64_t packs;
    Divider packs_per_row;
    int packs_in_row, width;
    Body body;
    __device__ void operator()(const Block& block) const {
        block.each_alone([&](int thread) {
            const std::int64_t i = block.number() * kThreads + thread;
            if (i >= packs) return;
            const std::uint32_t number = static_cast<std::uint32_t>(i), row = packs_per_row.quotient(number);
            body(static_cast<std::int64_t>(row), static_cast<std::int64_t>(number - row * packs_in_row) * width);
        });
    }
};
template <class P, class Body>
void launch_in_rows(cudaStream_t stream, std::int64_t rows, std::int64_t columns, const Body& body) {
    const std::int64_t packs_in_row = columns / P::kWidth, packs = rows * packs_in_row;
    if (packs == 0) return;
    check(packs < (std::int64_t{1} << 31), "a matrix has too many elements for one kernel");
    launch(stream, (packs + kThreads - 1) / kThreads,
           PerPackInRows<Body>{packs, Divider(packs_in_row), static_cast<int>(packs_in_row), P::kWidth, body});
}

}  // namespace atl::kernels::gpu
