// Included once for each instruction set, with ATOLL_INSTRUCTION_SET naming it.

#include <cstdint>
#if defined(__AVX512F__)
#include <immintrin.h>  // its functions are always inlined
#endif

#include "trainer/kernels/cpu/simd_kernels.h"
#include "trainer/tensor/philox.h"

namespace atl::kernels::cpu::ATOLL_INSTRUCTION_SET {
namespace {

// Each builds on those before it.
// clang-format off
#include "trainer/kernels/cpu/simd.inl"
#include "trainer/kernels/cpu/elementwise.inl"
#include "trainer/kernels/cpu/random.inl"
#include "trainer/kernels/cpu/quantized.inl"
#include "trainer/kernels/cpu/rms_norm.inl"
#include "trainer/kernels/cpu/layer_norm.inl"
#include "trainer/kernels/cpu/bias.inl"
#include "trainer/kernels/cpu/rope.inl"
#include "trainer/kernels/cpu/activation.inl"
#include "trainer/kernels/cpu/softmax.inl"
#include "trainer/kernels/cpu/cross_entropy.inl"
#include "trainer/kernels/cpu/attention.inl"
#include "trainer/kernels/cpu/attention_backward.inl"
#include "trainer/kernels/cpu/attention_step.inl"
#include "trainer/kernels/cpu/optimizer.inl"
// clang-format on

}  // namespace

#define ATOLL_NAME_INNER(name) #name
#define ATOLL_NAME(name) ATOLL_NAME_INNER(name)

const SimdKernels& simd_kernels() {
    static constexpr SimdKernels kKernels = {
        .name = ATOLL_NAME(ATOLL_INSTRUCTION_SET),
        .add = add,
        .scale = scale,
        .sum = sum,
        .sum_of_squares = sum_of_squares,
        .int8_to_f32 = int8_to_f32,
        .nf4_to_f32 = nf4_to_f32,
        .round_to_bf16 = round_to_bf16,
        .random_halves = random_halves,
        .rmsnorm_forward = rmsnorm_forward,
        .add_rmsnorm_forward = add_rmsnorm_forward,
        .rmsnorm_apply = rmsnorm_apply,
        .rmsnorm_backward = rmsnorm_backward,
        .layernorm_forward = layernorm_forward,
        .layernorm_apply = layernorm_apply,
        .layernorm_backward = layernorm_backward,
        .add_bias = add_bias,
        .bias_relu = bias_relu,
        .relu_backward = relu_backward,
        .sum_rows = sum_rows,
        .rope = rope,
        .attention_scratch_floats = attention_scratch_floats,
        .attention_forward = attention_forward,
        .attention_backward = attention_backward,
        .attention_step_scores = attention_step_scores,
        .attention_step_values = attention_step_values,
        .swiglu_forward = swiglu_forward,
        .swiglu_backward = swiglu_backward,
        .cross_entropy_forward = cross_entropy_forward,
        .cross_entropy_backward = cross_entropy_backward,
        .adamw = adamw,
        .sgd = sgd,
        .nesterov = nesterov,
    };
    return kKernels;
}

}  // namespace atl::kernels::cpu::ATOLL_INSTRUCTION_SET
