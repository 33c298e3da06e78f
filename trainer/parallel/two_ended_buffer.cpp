#include "trainer/parallel/two_ended_buffer.h"

#include <algorithm>
#include <utility>

namespace atl::parallel {

using tensor::aligned;
using tensor::Tensor;

TwoEndedBuffer TwoEndedBuffer::lay_out(tensor::Arena& arena, tensor::Category category, tensor::DType dtype,
                                       std::vector<std::int64_t> elements) {
    std::int64_t room = 0;
    for (std::size_t block = 0; block < elements.size(); ++block) {
        const std::int64_t next = block + 1 < elements.size() ? elements[block + 1] : 0;
        room = std::max(room, aligned(elements[block]) + aligned(next));
    }
    TwoEndedBuffer buffer;
    buffer.elements_ = std::move(elements);
    if (room > 0) buffer.whole_ = arena.allocate(category, dtype, {room});
    return buffer;
}

Tensor TwoEndedBuffer::at(End end, std::size_t block) const {
    const std::int64_t count = elements_[block];
    if (count == 0) return {};
    return flat_range(whole_, end == End::kFront ? 0 : whole_.element_count() - aligned(count), count);
}

bool TwoEndedBuffer::holds_both(std::size_t one, std::size_t other) const {
    return aligned(elements_[one]) + aligned(elements_[other]) <= whole_.element_count();
}

}  // namespace atl::parallel
