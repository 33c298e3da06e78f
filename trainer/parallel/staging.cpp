#include "trainer/parallel/staging.h"

#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using kernels::Space;
using kernels::Stream;
using tensor::Tensor;

Tensor as_bytes(const tensor::Memory& memory, std::int64_t begin, std::int64_t count) {
    return {memory.data() + begin, tensor::DType::kU8, {count}};
}

Tensor as_bytes(const Tensor& tensor) {
    return {tensor.data(), tensor::DType::kU8, {tensor.byte_count()}};
}

bool host_reaches(const kernels::Backend& backend, Space space) {
    return space == Space::kPinned || backend.host_reaches_device();
}

void make_room(kernels::Backend& backend, tensor::Memory& memory, std::int64_t bytes) {
    if (memory.size_bytes() >= bytes) return;
    memory.reset();
    auto larger = backend.allocate(Space::kPinned, bytes);
    check(larger.ok(), "no pinned memory for an exchange between ranks");
    memory = std::move(larger).value();
}

}  // namespace

std::span<const std::byte> Staging::leave_device(kernels::Backend& backend, const Tensor& from, Space space) {
    if (space == Space::kPinned && !backend.host_reaches_device()) {
        backend.wait_on_host(backend.record(Stream::kCompute));
        return from.bytes();
    }
    return leave_device(backend, from, 1, 0, from.element_count());
}

std::span<const std::byte> Staging::leave_device(kernels::Backend& backend, const Tensor& whole, int parts,
                                                 std::int64_t begin, std::int64_t count) {
    const std::int64_t part = whole.element_count() / parts;
    if (backend.host_reaches_device()) {
        backend.synchronize();
        return flat_range(whole, begin, (parts - 1) * part + count).bytes();
    }
    const std::int64_t bytes = tensor::size_bytes(whole.dtype(), count);
    make_room(backend, sent_, parts * bytes);
    backend.wait(Stream::kOut, backend.record(Stream::kCompute));
    for (int i = 0; i < parts; ++i) {
        const Tensor range = flat_range(whole, i * part + begin, count);
        backend.transfer(Stream::kOut, as_bytes(range), as_bytes(sent_, i * bytes, bytes));
    }
    backend.wait_on_host(backend.record(Stream::kOut));
    return as_bytes(sent_, 0, parts * bytes).bytes();
}

std::span<std::byte> Staging::landing(kernels::Backend& backend, const Tensor& to, Space space) {
    if (host_reaches(backend, space)) return to.bytes();
    make_room(backend, received_, to.byte_count());
    return as_bytes(received_, 0, to.byte_count()).bytes();
}

void Staging::receive(kernels::Backend& backend, const Tensor& to, Space space) const {
    if (host_reaches(backend, space)) return;
    backend.transfer(Stream::kIn, as_bytes(received_, 0, to.byte_count()), as_bytes(to));
    backend.wait(Stream::kCompute, backend.record(Stream::kIn));
}

}  // namespace atl::parallel
