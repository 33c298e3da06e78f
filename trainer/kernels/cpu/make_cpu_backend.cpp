#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "shared/numeric/cpu_features.h"
#include "trainer/kernels/backend.h"
#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::kernels {
namespace {

struct InstructionSet {
    std::string_view name;
    const cpu::SimdKernels& (*simd_kernels)();
    const cpu::Sgemm& (*sgemm)();
    bool (*offered)();
};

// Widest first. oneDNN's GEMM is the faster one with AVX-512, OpenBLAS' without (bench/README.md).
constexpr std::array kInstructionSets = {
#if defined(__x86_64__)
    InstructionSet{"avx512", cpu::avx512::simd_kernels, cpu::onednn, numeric::has_avx512},
    InstructionSet{"avx2", cpu::avx2::simd_kernels, cpu::avx2_sgemm, numeric::has_avx2},
#endif
    InstructionSet{"baseline", cpu::baseline::simd_kernels, cpu::openblas, [] { return true; }},
};

constexpr const char* kInstructionSetVariable = "ATOLL_INSTRUCTION_SET";

Result<InstructionSet> choose_instruction_set(const std::string& given) {
    const char* const chosen = std::getenv(kInstructionSetVariable);
    const std::string wanted = given.empty() && chosen != nullptr ? chosen : given;
    for (const auto& set : kInstructionSets) {
        if (set.offered() && (wanted.empty() || set.name == wanted)) return set;
    }
    const char* const field = given.empty() ? kInstructionSetVariable : "instruction_set";
    return invalid_argument(
        field, "'" + wanted + "' is not offered by this machine or build; `atoll-trainer report` lists what is");
}

}  // namespace

std::vector<std::string> cpu_instruction_sets() {
    std::vector<std::string> names;
    for (const auto& set : kInstructionSets) {
        if (set.offered()) names.emplace_back(set.name);
    }
    return names;
}

Result<std::string> cpu_kernels(tensor::DType products) {
    ATOLL_TRY(const InstructionSet set, choose_instruction_set({}));
    return cpu::kernels_name(set.simd_kernels(), set.sgemm(), products);
}

std::string cpu_bf16_instructions() {
    const auto set = choose_instruction_set({});
    return set.ok() && set->sgemm().multiply_bf16 != nullptr ? std::string(numeric::fast_bf16()) : "";
}

std::vector<std::string> cpu_gemm_libraries() {
    std::vector<std::string> names;
    for (const auto& set : kInstructionSets) {
        const std::string name = set.sgemm().name();
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return names;
}

std::string cpu_gemm_warning() {
    const std::string core = numeric::has_avx2() ? cpu::openblas_too_old_for_avx2() : "";
    if (core.empty()) return "";
    return "OpenBLAS takes its " + core +
           " kernels, which know no AVX2, at a third of the rate: products without AVX-512 go through oneDNN. Unset "
           "OPENBLAS_CORETYPE; if it is not set, take an OpenBLAS that is built with DYNAMIC_ARCH";
}

Result<std::unique_ptr<Backend>> make_cpu_backend(int threads, const std::string& instruction_set,
                                                  tensor::DType products) {
    if (threads < 1) return invalid_argument("threads", "must be at least 1");
    ATOLL_TRY(const InstructionSet set, choose_instruction_set(instruction_set));
    try {
        return std::unique_ptr<Backend>(
            std::make_unique<cpu::CpuBackend>(set.simd_kernels(), set.sgemm(), threads, products));
    } catch (const std::system_error& error) {
        return unavailable("cannot start " + std::to_string(threads) + " threads: " + error.code().message() +
                           "; give fewer --threads, or raise the limits on processes and memory (ulimit -u, -v)");
    }
}

}  // namespace atl::kernels
