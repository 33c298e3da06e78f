#include "trainer/parallel/staging.h"

#include "trainer/parallel/sharding.h"
#include "trainer/trace/trace.h"

namespace atl::parallel {
namespace {

using kernels::Space;
using kernels::Stream;
using tensor::Tensor;

Tensor as_bytes(const Tensor& tensor) {
    return {tensor.data(), tensor::DType::kU8, {tensor.byte_count()}};
}

bool host_reaches(const kernels::Backend& backend, Space space) {
    return space == Space::kPinned || backend.host_reaches_device();
}

}  // namespace

std::int64_t Staging::need_bytes(const kernels::Backend& backend, std::int64_t bytes, Space space) {
    return host_reaches(backend, space) ? 0 : tensor::aligned(bytes);
}

Tensor Staging::front(std::int64_t begin, std::int64_t bytes) const {
    check(begin + bytes <= pinned_.byte_count(), "an exchange has too little pinned memory");
    return flat_range(pinned_, begin, bytes);
}

Tensor Staging::back(std::int64_t bytes) const {
    return front(pinned_.byte_count() - tensor::aligned(bytes), bytes);
}

std::span<const std::byte> Staging::leave_device(const Tensor& from, Space space) const {
    if (space == Space::kPinned && !backend_->host_reaches_device()) {
        backend_->wait_on_host(backend_->record(Stream::kCompute), of_);
        return from.bytes();
    }
    return leave_device(from, 1, 0, from.element_count());
}

std::span<const std::byte> Staging::leave_device(const Tensor& whole, int parts, std::int64_t begin,
                                                 std::int64_t count) const {
    const std::int64_t part = whole.element_count() / parts;
    if (backend_->host_reaches_device()) {
        backend_->synchronize();
        return flat_range(whole, begin, (parts - 1) * part + count).bytes();
    }
    const std::int64_t bytes = tensor::size_bytes(whole.dtype(), count);
    backend_->wait(Stream::kOut, backend_->record(Stream::kCompute));
    for (int i = 0; i < parts; ++i) {
        const trace::StreamSpan span(Stream::kOut, "copy out");
        const Tensor range = flat_range(whole, i * part + begin, count);
        backend_->transfer(Stream::kOut, as_bytes(range), front(i * bytes, bytes));
    }
    backend_->wait_on_host(backend_->record(Stream::kOut), of_);
    return front(0, parts * bytes).bytes();
}

std::span<std::byte> Staging::landing(const Tensor& to, Space space) const {
    return host_reaches(*backend_, space) ? to.bytes() : back(to.byte_count()).bytes();
}

void Staging::receive(const Tensor& to, Space space) const {
    if (host_reaches(*backend_, space)) return;
    {
        const trace::StreamSpan span(Stream::kIn, "copy in");
        backend_->transfer(Stream::kIn, back(to.byte_count()), as_bytes(to));
    }
    backend_->wait(Stream::kCompute, backend_->record(Stream::kIn));
}

}  // namespace atl::parallel
