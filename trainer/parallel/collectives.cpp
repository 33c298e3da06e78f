#include "trainer/parallel/collectives.h"

#include <utility>

#include "trainer/parallel/mpi_collectives.h"
#include "trainer/trace/trace.h"

namespace atl::parallel {

std::unique_ptr<ExchangeLibrary> open_exchange_library(kernels::Backend& backend) {
    return std::make_unique<MpiLibrary>(backend);
}

void wait_by_ranks(kernels::Backend& backend, comm::Comm& ranks, std::shared_ptr<const ExchangeLibrary> library) {
    backend.wait_by([&ranks, library = std::move(library)](const std::function<bool()>& is_done, kernels::Event event,
                                                           std::string_view of) {
        const comm::Awaited work{of.empty() ? "the work" : of, "its device", "computing"};
        const comm::Awaited awaited = library->transfer_until(event).value_or(work);
        const auto look = [&] {
            library->end_if_failed(awaited);
            return is_done();
        };
        ranks.wait_until(look, awaited);
    });
}

kernels::Event copy_in(kernels::Backend& backend, const Tensor& pinned, const Tensor& on_device) {
    using kernels::Stream;
    check(pinned.byte_count() == on_device.byte_count(), "copy_in: the lengths differ");
    backend.wait(Stream::kIn, backend.record(Stream::kCompute));
    {
        const trace::StreamSpan span(Stream::kIn, "copy in");
        backend.transfer(Stream::kIn, pinned, on_device);
    }
    return backend.record(Stream::kIn);
}

}  // namespace atl::parallel
