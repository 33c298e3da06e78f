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

bool has_fast_bf16() {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") &&
           (__builtin_cpu_supports("amx-bf16") || __builtin_cpu_is("amd"));
}
#else
bool has_avx2() {
    return false;
}

bool has_avx512() {
    return false;
}

bool has_fast_bf16() {
    return false;
}
#endif

}  // namespace atl::numeric
