#include "trainer/parallel/device_scalars.h"

#include <cstring>

#include "trainer/trace/trace.h"

namespace atl::parallel {

using kernels::Stream;
using tensor::Category;
using tensor::DType;

double read_scalar(kernels::Backend& backend, const Tensor& scalar) {
    double value = 0;
    check(scalar.byte_count() == sizeof(value), "not one number in fp64");
    backend.copy_to_host(scalar, &value);
    return value;
}

DeviceScalars DeviceScalars::lay_out(Arena& device, Arena& pinned) {
    DeviceScalars scalars;
    scalars.all_ = device.allocate(Category::kWorkspace, DType::kF64, {kernels::kStepScalars});
    scalars.pinned_sums_ = pinned.allocate(Category::kWorkspace, DType::kF64, {2});
    for (Copy& copy : scalars.copies_)
        copy.scalars = pinned.allocate(Category::kWorkspace, DType::kF64, {kernels::kStepScalars});
    return scalars;
}

void DeviceScalars::set(kernels::Backend& backend, const kernels::StepScalars& scalars) const {
    backend.copy_from_host(&scalars, all_);
}

Tensor DeviceScalars::part(std::size_t offset_bytes, std::int64_t count) const {
    return {all_.at(static_cast<std::int64_t>(offset_bytes / sizeof(double))), DType::kF64, {count}};
}

void DeviceScalars::send(kernels::Backend& backend) {
    check(unread() < kUnread, "the scalars of too many steps are unread");
    Copy& copy = copies_[static_cast<std::size_t>(sent_++ % kUnread)];
    backend.wait(Stream::kOut, backend.record(Stream::kCompute));
    {
        const trace::StreamSpan span(Stream::kOut, "copy out", "loss and norm");
        backend.transfer(Stream::kOut, all_, copy.scalars);
    }
    copy.arrived = backend.record(Stream::kOut);
    backend.wait(Stream::kCompute, copy.arrived);  // the next step writes there
}

kernels::StepScalars DeviceScalars::receive(kernels::Backend& backend, std::string_view step) {
    check(unread() > 0, "no scalars were sent");
    const Copy& copy = copies_[static_cast<std::size_t>(received_++ % kUnread)];
    if (!backend.has_happened(copy.arrived)) {
        const trace::Span span("wait for device", step);
        backend.wait_on_host(copy.arrived, step);
    }
    kernels::StepScalars scalars;
    std::memcpy(&scalars, copy.scalars.data(), sizeof(scalars));
    return scalars;
}

}  // namespace atl::parallel
