#include <algorithm>
#include <memory>
#include <vector>

#include "bench/gpu/bench.h"
#include "trainer/quant/int8.h"
#include "trainer/quant/nf4.h"
#include "trainer/tensor/sort_by_id.h"

namespace atl::bench {
namespace {

constexpr float kEpsilon = 1e-6F;

// Bytes of [N, columns] in bf16, read or written so many times.
double passes(const Bench& bench, std::int64_t columns, double times) {
    return 2 * times * static_cast<double>(bench.shapes.tokens) * static_cast<double>(columns);
}

Case product(Bench& bench, std::int64_t rows, std::int64_t columns, std::int64_t depth, bool transpose_a,
             bool transpose_b, DType result) {
    const Tensor a = transpose_a ? bench.bf16({depth, rows}) : bench.bf16({rows, depth});
    const Tensor b = transpose_b ? bench.bf16({columns, depth}) : bench.bf16({depth, columns});
    const Tensor c = bench.uninitialised(result, {rows, columns});
    const auto call = [=, &bench] { bench.backend.matmul(a, transpose_a, b, transpose_b, c, false); };
    return {0, 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth), call};
}

// Of the gate and up projections together: forward, and the gradients of their input and weights.
Case up_product(Bench& bench) {
    return product(bench, bench.shapes.tokens, 2 * bench.shapes.forward, bench.shapes.channels, false, true,
                   DType::kBF16);
}
Case up_product_input_gradient(Bench& bench) {
    return product(bench, bench.shapes.tokens, bench.shapes.channels, 2 * bench.shapes.forward, false, false,
                   DType::kBF16);
}
Case up_product_weight_gradient(Bench& bench) {
    return product(bench, 2 * bench.shapes.forward, bench.shapes.channels, bench.shapes.tokens, true, false,
                   DType::kF32);
}

// The gate and up projections' weights; what their codes are takes no time.
Case dequantize(Bench& bench, DType format, std::int64_t stored_bytes) {
    const std::int64_t rows = 2 * bench.shapes.forward, columns = bench.shapes.channels;
    const Tensor stored(bench.bytes(stored_bytes), format, {rows, columns});
    const Tensor out = bench.uninitialised(DType::kBF16, {rows, columns});
    return {static_cast<double>(stored_bytes + out.byte_count()), 0,
            [=, &bench] { bench.backend.dequantize(stored, out); }};
}
Case dequantize_nf4(Bench& bench) {
    return dequantize(bench, DType::kNf4, quant::Nf4Layout(2 * bench.shapes.forward * bench.shapes.channels).size);
}
Case dequantize_int8(Bench& bench) {
    return dequantize(bench, DType::kInt8, quant::Int8Layout(2 * bench.shapes.forward, bench.shapes.channels).size);
}

Case rmsnorm_forward(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor x = bench.bf16({n, c}), weight = bench.bf16({c}), out = bench.bf16({n, c}), rstd = bench.f32({n});
    return {passes(bench, c, 2), 0, [=, &bench] { bench.backend.rmsnorm_forward(x, weight, kEpsilon, out, rstd); }};
}

Case add_rmsnorm_forward(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor x = bench.bf16({n, c}), delta = bench.bf16({n, c}), weight = bench.bf16({c});
    const Tensor sum = bench.bf16({n, c}), out = bench.bf16({n, c}), rstd = bench.f32({n});
    const auto call = [=, &bench] { bench.backend.add_rmsnorm_forward(x, delta, weight, kEpsilon, sum, out, rstd); };
    return {passes(bench, c, 4), 0, call};
}

Case rmsnorm_backward(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor x = bench.bf16({n, c}), weight = bench.bf16({c}), out_gradient = bench.bf16({n, c});
    const Tensor rstd = bench.f32({n}), residual = bench.bf16({n, c}), x_gradient = bench.bf16({n, c});
    const Tensor weight_gradient = bench.f32({c});
    const auto call = [=, &bench] {
        bench.backend.rmsnorm_backward(x, weight, rstd, out_gradient, residual, x_gradient, weight_gradient, false);
    };
    return {passes(bench, c, 4), 0, call};
}

Case layernorm_forward(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor x = bench.bf16({n, c}), weight = bench.bf16({c}), bias = bench.bf16({c}), out = bench.bf16({n, c});
    const Tensor moments = bench.f32({n, 2});
    const auto call = [=, &bench] { bench.backend.layernorm_forward(x, weight, bias, kEpsilon, out, moments); };
    return {passes(bench, c, 2), 0, call};
}

Case layernorm_backward(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor x = bench.bf16({n, c}), weight = bench.bf16({c}), out_gradient = bench.bf16({n, c});
    const Tensor moments = bench.f32({n, 2}), residual = bench.bf16({n, c}), x_gradient = bench.bf16({n, c});
    const Tensor weight_gradient = bench.f32({c}), bias_gradient = bench.f32({c});
    const auto call = [=, &bench] {
        bench.backend.layernorm_backward(x, weight, moments, out_gradient, residual, x_gradient, weight_gradient,
                                         bias_gradient, false);
    };
    return {passes(bench, c, 4), 0, call};
}

Case norm_heads(Bench& bench) {
    const AttentionShape& shape = bench.shapes.attention_qwen;
    const Tensor qkv = bench.bf16({1, shape.length, shape.qkv_columns()});
    const Tensor out = bench.bf16({1, shape.length, shape.qkv_columns()}), weight = bench.bf16({shape.head_channels});
    const Tensor rstd = bench.f32({shape.length, shape.heads + shape.kv_heads});
    const auto call = [=, &bench] { bench.backend.norm_heads(shape, qkv, weight, weight, kEpsilon, out, rstd); };
    return {passes(bench, shape.qkv_columns(), 2), 0, call};
}

Case norm_heads_backward(Bench& bench) {
    const AttentionShape& shape = bench.shapes.attention_qwen;
    const Tensor qkv = bench.bf16({1, shape.length, shape.qkv_columns()});
    const Tensor gradient = bench.bf16({1, shape.length, shape.qkv_columns()});
    const Tensor weight = bench.bf16({shape.head_channels});
    const Tensor rstd = bench.f32({shape.length, shape.heads + shape.kv_heads});
    const Tensor query = bench.f32({shape.head_channels}), key = bench.f32({shape.head_channels});
    const auto call = [=, &bench] {
        bench.backend.norm_heads_backward(shape, qkv, weight, weight, rstd, gradient, query, key, false);
    };
    // The values' gradients stay as they are.
    return {passes(bench, (shape.heads + shape.kv_heads) * shape.head_channels, 3), 0, call};
}

Case swiglu_forward(Bench& bench) {
    const auto [n, f] = std::pair(bench.shapes.tokens, bench.shapes.forward);
    const Tensor gate_up = bench.bf16({n, 2 * f}), out = bench.bf16({n, f});
    return {passes(bench, f, 3), 0, [=, &bench] { bench.backend.swiglu_forward(gate_up, out); }};
}

Case swiglu_backward(Bench& bench) {
    const auto [n, f] = std::pair(bench.shapes.tokens, bench.shapes.forward);
    const Tensor gate_up = bench.bf16({n, 2 * f}), out_gradient = bench.bf16({n, f}), out = bench.bf16({n, f});
    const Tensor gradient = bench.bf16({n, 2 * f});
    const auto call = [=, &bench] { bench.backend.swiglu_backward(gate_up, out_gradient, gradient, out); };
    return {passes(bench, f, 6), 0, call};
}

Case rope(Bench& bench) {
    const AttentionShape& shape = bench.shapes.attention_7b;
    const Tensor qkv = bench.bf16({1, shape.length, shape.qkv_columns()});
    const Tensor table = bench.f32({shape.length, shape.head_channels});
    const Tensor positions = bench.integers({1, shape.length}, shape.length);
    const auto call = [=, &bench] { bench.backend.rope(shape, table, positions, qkv, false); };
    return {passes(bench, (shape.heads + shape.kv_heads) * shape.head_channels, 2), 0, call};
}

Case add(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor a = bench.bf16({n, c}), b = bench.bf16({n, c}), out = bench.bf16({n, c});
    return {passes(bench, c, 3), 0, [=, &bench] { bench.backend.add(a, b, out); }};
}

Case convert_to_bf16(Bench& bench) {
    const Tensor from = bench.f32({bench.shapes.flat}), to = bench.bf16({bench.shapes.flat});
    return {6.0 * static_cast<double>(bench.shapes.flat), 0, [=, &bench] { bench.backend.convert(from, to); }};
}

Case add_bias(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor x = bench.bf16({n, c}), bias = bench.bf16({c}), residual = bench.bf16({n, c}),
                 out = bench.bf16({n, c});
    return {passes(bench, c, 3), 0, [=, &bench] { bench.backend.add_bias(x, bias, residual, out); }};
}

Case bias_relu(Bench& bench) {
    const auto [n, f] = std::pair(bench.shapes.tokens, bench.shapes.forward);
    const Tensor x = bench.bf16({n, f}), bias = bench.bf16({f});
    return {passes(bench, f, 2), 0, [=, &bench] { bench.backend.bias_relu(x, bias); }};
}

Case sum_rows(Bench& bench) {
    const auto [n, c] = std::pair(bench.shapes.tokens, bench.shapes.channels);
    const Tensor x = bench.bf16({n, c}), out = bench.f32({c});
    return {passes(bench, c, 1), 0, [=, &bench] { bench.backend.sum_rows(x, out, false); }};
}

Case embedding_forward(Bench& bench) {
    const auto [n, c, v] = std::tuple(bench.shapes.tokens, bench.shapes.channels, bench.shapes.vocabulary);
    const Tensor table = bench.bf16({v, c}), ids = bench.integers({n}, v), out = bench.bf16({n, c});
    return {passes(bench, c, 2), 0, [=, &bench] { bench.backend.embedding_forward(table, ids, out); }};
}

// Writes the whole table.
Case embedding_backward(Bench& bench) {
    const auto [n, c, v] = std::tuple(bench.shapes.tokens, bench.shapes.channels, bench.shapes.vocabulary);
    const Tensor ids = bench.integers({n}, v), by_id = bench.integers({n}, n);
    std::vector<std::int32_t> on_host(static_cast<std::size_t>(n)), sorted(on_host.size());
    bench.backend.copy_to_host(ids, on_host.data());
    tensor::sort_by_id(on_host, sorted);
    bench.backend.copy_from_host(sorted.data(), by_id);
    const Tensor gradient = bench.bf16({n, c}), table = bench.f32({v, c});
    const auto call = [=, &bench] { bench.backend.embedding_backward(ids, by_id, gradient, table, false); };
    return {passes(bench, c, 1) + 4.0 * static_cast<double>(v * c), 0, call};
}

// Of as many tokens as the head has logits of at a time.
Case cross_entropy(Bench& bench, bool backward) {
    const std::int64_t v = bench.shapes.vocabulary;
    const std::int64_t n = std::min(bench.backend.loss_rows(v), bench.shapes.tokens);
    const Tensor logits = bench.bf16({n, v}), targets = bench.integers({n}, v), losses = bench.f32({n});
    const auto call = [=, &bench] {
        if (backward) {
            bench.backend.cross_entropy_backward(logits, targets, 1.0F, {}, losses);
        } else {
            bench.backend.cross_entropy_forward(logits, targets, losses);
        }
    };
    return {(backward ? 4.0 : 2.0) * static_cast<double>(n * v), 0, call};
}
Case cross_entropy_forward(Bench& bench) {
    return cross_entropy(bench, false);
}
Case cross_entropy_backward(Bench& bench) {
    return cross_entropy(bench, true);
}

Case sum_of_squares(Bench& bench) {
    const Tensor x = bench.f32({bench.shapes.flat}), into = bench.uninitialised(DType::kF64, {1});
    return {4.0 * static_cast<double>(bench.shapes.flat), 0,
            [=, &bench] { bench.backend.sum_of_squares(x, into, false); }};
}

// Masters and moments in fp32, or weights and moments in bf16 without masters; gradients in fp32.
Case adamw(Bench& bench, bool has_masters) {
    const std::int64_t n = bench.shapes.flat;
    const DType kept = has_masters ? DType::kF32 : DType::kBF16;
    kernels::OptimizerRange range;
    range.weights = bench.random(kept, {n});
    range.gradients = bench.f32({n});
    range.first_moments = bench.random(kept, {n});
    range.second_moments = bench.random(kept, {n});
    bench.backend.zero(range.second_moments);  // which are squares
    if (has_masters) range.stored = bench.bf16({n});
    kernels::StepScalars step;
    step.updates = 10;
    const Tensor scalars = bench.uninitialised(DType::kF64, {kernels::kStepScalars});
    bench.backend.copy_from_host(&step, scalars);
    const kernels::AdamWStep rule = {1e-3F, 0.9F, 0.999F, 1e-8F, 0.01F};
    return {(has_masters ? 30.0 : 16.0) * static_cast<double>(n), 0,
            [=, &bench] { bench.backend.adamw(rule, scalars, range); }};
}
Case adamw_with_masters(Bench& bench) {
    return adamw(bench, true);
}
Case adamw_in_bf16(Bench& bench) {
    return adamw(bench, false);
}

// Causal, so half of the products of all queries and keys: two forward, five backward.
Case attention(Bench& bench, const AttentionShape& shape, bool backward) {
    const auto [b, t, h] = std::tuple(shape.batch, shape.length, shape.heads);
    const Tensor qkv = bench.bf16({b, t, shape.qkv_columns()}), out = bench.bf16({b, t, h * shape.head_channels});
    const Tensor kept = bench.uninitialised(DType::kU8, {bench.backend.attention_kept_bytes(shape)});
    const Tensor out_gradient = bench.bf16({b, t, h * shape.head_channels});
    const Tensor qkv_gradient = bench.bf16({b, t, shape.qkv_columns()});
    const std::int64_t workspace_bytes = bench.backend.attention_workspace_bytes(shape);
    std::byte* const workspace = bench.bytes(workspace_bytes);
    const auto forward = [=, &bench] {
        auto arena = tensor::Arena::borrowing(workspace, workspace_bytes);
        bench.backend.attention_forward(shape, qkv, {}, out, kept, arena);
    };
    const double product = static_cast<double>(b * h * t) * static_cast<double>(t * shape.head_channels);
    if (!backward) return {0, 2 * product, forward};
    forward();
    return {0, 5 * product, [=, &bench] {
                auto arena = tensor::Arena::borrowing(workspace, workspace_bytes);
                bench.backend.attention_backward(shape, qkv, {}, out, kept, out_gradient, {}, qkv_gradient, arena);
            }};
}
Case attention_852m_forward(Bench& bench) {
    return attention(bench, bench.shapes.attention_852m, false);
}
Case attention_852m_backward(Bench& bench) {
    return attention(bench, bench.shapes.attention_852m, true);
}
Case attention_7b_forward(Bench& bench) {
    return attention(bench, bench.shapes.attention_7b, false);
}
Case attention_7b_backward(Bench& bench) {
    return attention(bench, bench.shapes.attention_7b, true);
}

constexpr NamedCase kCases[] = {
    {"up_product", up_product},
    {"up_product_input_gradient", up_product_input_gradient},
    {"up_product_weight_gradient", up_product_weight_gradient},
    {"attention_852m_forward", attention_852m_forward},
    {"attention_852m_backward", attention_852m_backward},
    {"add_rmsnorm_forward", add_rmsnorm_forward},
    {"rmsnorm_backward", rmsnorm_backward},
    {"swiglu_forward", swiglu_forward},
    {"swiglu_backward", swiglu_backward},
    {"rope", rope},
    {"cross_entropy_forward", cross_entropy_forward},
    {"cross_entropy_backward", cross_entropy_backward},
    {"adamw_in_bf16", adamw_in_bf16},
    {"adamw_with_masters", adamw_with_masters},
    {"sum_of_squares", sum_of_squares},
    {"embedding_backward", embedding_backward},
    {"embedding_forward", embedding_forward},
    {"rmsnorm_forward", rmsnorm_forward},
    {"norm_heads", norm_heads},
    {"norm_heads_backward", norm_heads_backward},
    {"dequantize_nf4", dequantize_nf4},
    {"dequantize_int8", dequantize_int8},
    {"attention_7b_forward", attention_7b_forward},
    {"attention_7b_backward", attention_7b_backward},
    {"add", add},
    {"convert_to_bf16", convert_to_bf16},
    {"layernorm_forward", layernorm_forward},
    {"layernorm_backward", layernorm_backward},
    {"add_bias", add_bias},
    {"bias_relu", bias_relu},
    {"sum_rows", sum_rows},
};

}  // namespace

Case copy_case(Bench& bench) {
    const std::int64_t count = 4 * bench.shapes.flat;
    const Tensor from = bench.bf16({count}), to = bench.uninitialised(DType::kBF16, {count});
    return {4.0 * static_cast<double>(count), 0, [=, &bench] { bench.backend.copy(from, to); }};
}

Case large_product(Bench& bench) {
    const std::int64_t n = bench.shapes.product;
    return product(bench, n, n, n, false, true, DType::kBF16);
}

std::span<const NamedCase> kernel_cases() {
    return kCases;
}

}  // namespace atl::bench
