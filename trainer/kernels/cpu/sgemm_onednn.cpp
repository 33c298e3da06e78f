#include <malloc.h>

#include <dnnl.hpp>

#include "shared/base/check.h"
#include "shared/numeric/cpu_features.h"
#include "trainer/kernels/cpu/sgemm.h"

// Of <omp.h>, which compilers find only with their own OpenMP; oneDNN computes on as many threads as this says, and
// each thread has a number of its own.
extern "C" void omp_set_num_threads(int threads);

namespace atl::kernels::cpu {
namespace {

// Which bits come out: for AVX-512 (whatever of bf16 is beside it), and for AVX2, the library has one set of fp32
// kernels and, in one thread, one blocking, whatever the processor.
std::string onednn_name() {
    const dnnl_version_t& version = *dnnl_version();
    return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.patch) + (dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_avx2 ? " AVX2" : "");
}

void onednn_multiply(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOperand& a, const GemmOperand& b,
                     float* c, std::int64_t c_stride, bool accumulate) {
    omp_set_num_threads(1);
    const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0F, a.data,
                                            a.stride, b.data, b.stride, accumulate ? 1.0F : 0.0F, c, c_stride);
    check(status == dnnl_success, "oneDNN refused a product, or had no memory for its blocks");
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, tensor::DType dtype, std::int64_t stride,
                            bool transposed) {
    using dnnl::memory;
    return {{rows, columns},
            dtype == tensor::DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32,
            transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

// The library keeps the primitives that it has made, by shape.
void onednn_multiply_bf16(std::int64_t m, std::int64_t n, std::int64_t k, const Bf16Operand& a, const Bf16Operand& b,
                          void* c, tensor::DType c_dtype, std::int64_t c_stride, bool accumulate) {
    using tensor::DType;
    omp_set_num_threads(1);
    static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    thread_local dnnl::stream stream(cpu);
    const auto of_a = describe(m, k, DType::kBF16, a.stride, a.transposed);
    const auto of_b = describe(k, n, DType::kBF16, b.stride, b.transposed);
    const auto of_c = describe(m, n, c_dtype, c_stride, false);
    dnnl::primitive_attr attributes;
    if (accumulate) {
        dnnl::post_ops added;
        added.append_sum(1.0F);
        attributes.set_post_ops(added);
    }
    try {
#if DNNL_VERSION_MAJOR >= 3
        const dnnl::matmul product(dnnl::matmul::primitive_desc(cpu, of_a, of_b, of_c, attributes));
#else
        const dnnl::matmul product(dnnl::matmul::primitive_desc({of_a, of_b, of_c}, attributes, cpu));
#endif
        product.execute(stream, {{DNNL_ARG_SRC, {of_a, cpu, const_cast<void*>(a.data)}},
                                 {DNNL_ARG_WEIGHTS, {of_b, cpu, const_cast<void*>(b.data)}},
                                 {DNNL_ARG_DST, {of_c, cpu, c}}});
    } catch (const dnnl::error& error) {
        check(false, std::string("oneDNN refused a bf16 product: ") + error.what());
    }
}

// ONEDNN_MAX_CPU_ISA would take other kernels than the name says; the first who asks overrides it.
const Sgemm& onednn_up_to(dnnl_cpu_isa_t widest, decltype(Sgemm::multiply_bf16) multiply_bf16 = nullptr) {
    static const Sgemm sgemm = [&] {
        check(dnnl_version()->cpu_runtime == DNNL_RUNTIME_OMP,
              "oneDNN was not built for OpenMP, which sets its threads");
        // A build without that variable says that it does not implement this either.
        check(dnnl_set_max_cpu_isa(widest) != dnnl_invalid_arguments, "oneDNN's kernels were chosen already");
        // It takes and frees its buffers with every product. glibc would give some of them back to the kernel each time
        // and others not; kept, they are mapped once, and a plan sees what they take.
        ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that it allows
        ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
        return Sgemm{onednn_name, onednn_multiply, multiply_bf16};
    }();
    return sgemm;
}

}  // namespace

const Sgemm& onednn() {
    return !numeric::fast_bf16().empty() ? onednn_up_to(dnnl_cpu_isa_avx512_core_amx, onednn_multiply_bf16)
                                         : onednn_up_to(dnnl_cpu_isa_avx512_core);
}

// In a process that has taken AVX-512 before, as `verify` does, it stays with that.
const Sgemm& avx2_sgemm() {
    return openblas_too_old_for_avx2().empty() ? openblas() : onednn_up_to(dnnl_cpu_isa_avx2);
}

}  // namespace atl::kernels::cpu
