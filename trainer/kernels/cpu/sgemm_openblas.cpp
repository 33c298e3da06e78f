#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <semaphore>
#include <string_view>

#include "shared/numeric/cpu_features.h"
#include "trainer/kernels/cpu/sgemm.h"

// These two take the place of OpenBLAS' own functions that read its variables while it is loaded.
extern "C" {

// Called before it chooses its kernels. A release that is older than the processor would take the oldest ones, a third
// of the rate; all processors with AVX2 take one set here, and so compute the same bits, unless OPENBLAS_CORETYPE says
// otherwise.
void openblas_read_env() {
    if (atl::numeric::has_avx2()) ::setenv("OPENBLAS_CORETYPE", "Haswell", 0);
}

// The size of its pool. It is called by our threads and needs none; those would wait idle, and where they cannot have
// their memory (`ulimit -v`) the process would never end.
int openblas_num_threads_env() {
    return 1;
}

}  // extern "C"

namespace atl::kernels::cpu {
namespace {

// Its configuration begins with "OpenBLAS 0.3.21 ".
std::string openblas_name() {
    const std::string_view config = openblas_get_config();
    return std::string(config.substr(0, config.find(' ', config.find(' ') + 1))) + " " + openblas_get_corename();
}

// How many threads the library was built for, "… MAX_THREADS=64". It has a buffer for twice as many; with more calls at
// once than buffers it crashes. Half of them is enough.
std::ptrdiff_t openblas_calls_max() {
    constexpr std::string_view kKey = "MAX_THREADS=";
    const std::string_view config = openblas_get_config();
    const auto at = config.find(kKey);
    if (at == std::string_view::npos) return 1;  // built for one thread
    return std::max(1L, std::strtol(config.data() + at + kKey.size(), nullptr, 10));
}

void openblas_multiply(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOperand& a, const GemmOperand& b,
                       float* c, std::int64_t c_stride, bool accumulate) {
    static std::counting_semaphore<> calls(openblas_calls_max());
    calls.acquire();
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
                static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0F, a.data,
                static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), accumulate ? 1.0F : 0.0F, c,
                static_cast<blasint>(c_stride));
    calls.release();
}

}  // namespace

std::string openblas_too_old_for_avx2() {
    const std::string_view core = openblas_get_corename();
    for (const std::string_view known : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"})
        if (core == known) return "";
    return std::string(core);
}

const Sgemm& openblas() {
    static const Sgemm sgemm = (openblas_set_num_threads(1), Sgemm{openblas_name, openblas_multiply, nullptr});
    return sgemm;
}

}  // namespace atl::kernels::cpu
