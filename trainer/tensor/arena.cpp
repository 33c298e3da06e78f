#include "trainer/tensor/arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "shared/base/check.h"
#include "shared/base/words.h"

namespace atl::tensor {

const char* to_string(Category category) {
    static constexpr Word<Category> kNames[] = {{Category::kWeights, "weights"},
                                                {Category::kQuantized, "quantized"},
                                                {Category::kMasters, "masters"},
                                                {Category::kGradients, "gradients"},
                                                {Category::kMoments, "moments"},
                                                {Category::kStartWeights, "start_weights"},
                                                {Category::kControlVariate, "control_variate"},
                                                {Category::kActivations, "activations"},
                                                {Category::kGather, "gather"},
                                                {Category::kWorkspace, "workspace"}};
    static_assert(is_in_order(kNames) && std::size(kNames) == kCategoryCount);
    const char* const name = find_word(kNames, category);
    check(name != nullptr, "a category of memory has no name");
    return name;
}

Memory::Memory(std::byte* data, std::int64_t size_bytes, std::function<void(std::byte*, std::int64_t)> free)
    : data_(data), size_bytes_(size_bytes), free_(std::move(free)) {}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      free_(std::move(other.free_)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
    if (this != &other) {
        reset();
        data_ = std::exchange(other.data_, nullptr);
        size_bytes_ = std::exchange(other.size_bytes_, 0);
        free_ = std::move(other.free_);
    }
    return *this;
}

void Memory::reset() {
    if (data_ != nullptr && free_) free_(data_, size_bytes_);
    data_ = nullptr;
    size_bytes_ = 0;
}

Arena Arena::measuring() {
    Arena arena;
    arena.measuring_ = true;
    return arena;
}

Arena Arena::borrowing(std::byte* data, std::int64_t size_bytes) {
    Arena arena;
    arena.data_ = data;
    arena.size_bytes_ = size_bytes;
    return arena;
}

Arena::Arena(Memory memory) : memory_(std::move(memory)), data_(memory_.data()), size_bytes_(memory_.size_bytes()) {}

Tensor Arena::allocate(Category category, DType dtype, std::initializer_list<std::int64_t> shape) {
    constexpr std::int64_t kElementsMax = std::int64_t{1} << 58;  // so that their bytes can be added up
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) {
        check(dim >= 0 && !__builtin_mul_overflow(count, dim, &count) && count <= kElementsMax,
              "a tensor of more elements than there can be memory for");
    }
    return Tensor(allocate_bytes(category, tensor::size_bytes(dtype, count)), dtype, shape);
}

std::byte* Arena::allocate_bytes(Category category, std::int64_t bytes) {
    const std::int64_t size = aligned(bytes);
    std::byte* const data = measuring_ ? nullptr : data_ + used_bytes_;
    check(measuring_ || used_bytes_ + size <= size_bytes_, "the arena is full: it was measured for something else");
    used_bytes_ += size;
    peak_bytes_ = std::max(peak_bytes_, used_bytes_);
    auto& in_use = in_use_[static_cast<std::size_t>(category)];
    in_use += size;
    auto& peak = peaks_[static_cast<std::size_t>(category)];
    peak = std::max(peak, in_use);
    return data;
}

std::int64_t Arena::peak_bytes(Category category) const {
    return peaks_[static_cast<std::size_t>(category)];
}

}  // namespace atl::tensor
