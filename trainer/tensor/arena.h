#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>

#include "trainer/tensor/tensor.h"

namespace atl::tensor {

// What a training step's memory is for; the lines of the memory plan.
// kQuantized: the units that are kept as int8 or NF4, with their norms. kStartWeights: the weights of the start, for a
// proximal term. kControlVariate: the sums of gradients, and what is added to them.
enum class Category : std::uint8_t {
    kWeights,
    kQuantized,
    kMasters,
    kGradients,
    kMoments,
    kStartWeights,
    kControlVariate,
    kActivations,
    kGather,
    kWorkspace,
};
inline constexpr int kCategoryCount = 10;
const char* to_string(Category category);  // "weights", "gradients", …

// Every allocation starts at a multiple of this (a cache line, an AVX-512 register).
inline constexpr std::int64_t kAlignmentBytes = 64;
constexpr std::int64_t aligned(std::int64_t bytes) {
    return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

// Owns one block of memory, of the host or of a device; freed by whoever made it (see kernels::Backend::allocate).
class Memory {
  public:
    Memory() = default;
    Memory(std::byte* data, std::int64_t size_bytes, std::function<void(std::byte*, std::int64_t)> free);
    Memory(Memory&& other) noexcept;
    Memory& operator=(Memory&& other) noexcept;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { reset(); }

    std::byte* data() const { return data_; }
    std::int64_t size_bytes() const { return size_bytes_; }
    void reset();

  private:
    std::byte* data_ = nullptr;
    std::int64_t size_bytes_ = 0;
    std::function<void(std::byte*, std::int64_t)> free_;
};

// Bump allocation out of one block that was allocated before step 0. Not thread-safe.
//
// The same code lays out memory twice: over a measuring arena, which hands out views without memory and only counts,
// then over a real one of exactly peak_bytes(). So the plan is exact by construction.
//
//   Arena measured = Arena::measuring();
//   lay_out(measured);                                          // allocates tensors that have no data
//   ATOLL_TRY(Memory memory, backend.allocate(measured.peak_bytes()));
//   Arena arena(std::move(memory));
//   lay_out(arena);                                             // the same tensors, now with data
class Arena {
  public:
    // Counts only: tensors have no data.
    static Arena measuring();
    // Over memory that someone else owns, e.g. a block's saved activations inside a larger arena. Aligned.
    static Arena borrowing(std::byte* data, std::int64_t size_bytes);
    explicit Arena(Memory memory);

    bool is_measuring() const { return measuring_; }
    // Uninitialised. Running out is a programmer's error: the plan was wrong.
    Tensor allocate(Category category, DType dtype, std::initializer_list<std::int64_t> shape);
    std::byte* allocate_bytes(Category category, std::int64_t bytes);

    std::int64_t peak_bytes() const { return peak_bytes_; }
    std::int64_t size_bytes() const { return size_bytes_; }
    std::int64_t free_bytes() const { return size_bytes_ - used_bytes_; }  // of memory; none while measuring
    // Of one category, when that category was at its largest; the sum over categories may exceed peak_bytes().
    std::int64_t peak_bytes(Category category) const;

    // What was allocated during a Scope's life is given back at its end. Scopes nest.
    class Scope {
      public:
        explicit Scope(Arena& arena) : arena_(arena), used_bytes_(arena.used_bytes_), in_use_(arena.in_use_) {}
        ~Scope() {
            arena_.used_bytes_ = used_bytes_;
            arena_.in_use_ = in_use_;
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        Arena& arena_;
        std::int64_t used_bytes_;
        std::array<std::int64_t, kCategoryCount> in_use_;
    };

  private:
    Arena() = default;
    Memory memory_;
    std::byte* data_ = nullptr;
    bool measuring_ = false;
    std::int64_t size_bytes_ = 0;
    std::int64_t used_bytes_ = 0;
    std::int64_t peak_bytes_ = 0;
    std::array<std::int64_t, kCategoryCount> in_use_{};
    std::array<std::int64_t, kCategoryCount> peaks_{};
};

}  // namespace atl::tensor
