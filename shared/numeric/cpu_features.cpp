#include "shared/numeric/cpu_features.h"

namespace atl::numeric {

#if defined(__x86_64__)
bool has_avx2() {
    __builtin_cpu_init();  // it may be asked before main()
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

std::string_view fast_bf16() {
    if (!has_avx512() || !__builtin_cpu_supports("avx512bf16")) return "";
    if (__builtin_cpu_supports("amx-bf16")) return "amx";
    return __builtin_cpu_is("amd") ? "avx512_bf16" : "";
}
#else
bool has_avx2() {
    return false;
}

bool has_avx512() {
    return false;
}

std::string_view fast_bf16() {
    return "";
}
#endif

}  // namespace atl::numeric
