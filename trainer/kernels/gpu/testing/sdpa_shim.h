#pragma once

#include <cstdint>

// What tests may ask of the stand-in for attention's library (sdpa.h).
namespace atl::kernels::gpu::shim {

// Whether the next one opens. There is one at first.
void set_has_sdpa(bool has);
// Whether it has kernels for documents. It has at first.
void set_has_sdpa_of_documents(bool has);
// How many of its passes ran, ever.
std::int64_t sdpa_passes();
// A backward pass takes so many bytes of workspace more for a batch of one sequence: 0 at first.
void set_sdpa_bytes_of_one_sequence(std::int64_t more);

}  // namespace atl::kernels::gpu::shim
