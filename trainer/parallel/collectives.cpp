#include "trainer/parallel/collectives.h"

#include "trainer/parallel/mpi_collectives.h"

namespace atl::parallel {

std::unique_ptr<ExchangeLibrary> open_exchange_library(kernels::Backend& backend) {
    return std::make_unique<MpiLibrary>(backend);
}

}  // namespace atl::parallel
