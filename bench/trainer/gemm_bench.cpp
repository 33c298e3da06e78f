// The trainer's matrix products, by tiles over our threads, with oneDNN's sgemm for a tile (set avx512) and OpenBLAS'
// (set avx2, with the kernels that OpenBLAS chooses), against oneDNN's sgemm over its own threads; in turns. gemm_bench
// [ROUNDS]; two threads each, on a machine with AVX-512. The products are those of a forward pass and of the gradients
// of its weights, of the Llama of 33.5 M parameters (4 × 256 tokens) and of OPT-125m (1 × 512).

#include <dnnl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "trainer/kernels/backend.h"

// Of <omp.h>. A tile's product leaves its thread with one thread of OpenMP; oneDNN alone has as many as we.
extern "C" void omp_set_num_threads(int threads);

namespace {

using namespace atl;
using tensor::DType;
using tensor::Tensor;

constexpr int kThreads = 2;

struct Product {
    const char* name;
    std::int64_t rows, columns, depth;
    bool transpose_a, transpose_b;
};

constexpr Product kProducts[] = {
    {"llama q_proj", 1024, 512, 512, false, true},
    {"llama up_proj", 1024, 1376, 512, false, true},
    {"llama down_proj", 1024, 512, 1376, false, true},
    {"llama lm_head", 1024, 8000, 512, false, true},
    {"llama up_proj, gradient", 1376, 512, 1024, true, false},
    {"opt q_proj", 512, 768, 768, false, true},
    {"opt fc1", 512, 3072, 768, false, true},
    {"opt fc2", 512, 768, 3072, false, true},
    {"opt lm_head", 512, 50272, 768, false, true},
    {"opt fc1, gradient", 3072, 768, 512, true, false},
};

// Operations a second, in units of 1e9, of the fastest of a few calls: what the product can do, not what disturbs it.
template <class Call>
double rate(const Product& product, Call&& call) {
    double best_s = 1e9;
    for (int i = 0; i < 5; ++i) {
        const auto began = std::chrono::steady_clock::now();
        call();
        best_s = std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    return 2e-9 * static_cast<double>(product.rows * product.columns * product.depth) / best_s;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

void compare(kernels::Backend& onednn, kernels::Backend& openblas, const Product& product, int rounds) {
    const auto filled = [](std::int64_t count) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) * 0.01F - 0.5F;
        return values;
    };
    std::vector<float> a = filled(product.rows * product.depth), b = filled(product.columns * product.depth);
    std::vector<float> ours = filled(product.rows * product.columns), theirs = ours;
    const auto shaped = [](std::vector<float>& values, bool transposed, std::int64_t rows, std::int64_t columns) {
        return transposed ? Tensor(values.data(), DType::kF32, {columns, rows})
                          : Tensor(values.data(), DType::kF32, {rows, columns});
    };
    const Tensor left = shaped(a, product.transpose_a, product.rows, product.depth);
    const Tensor right = shaped(b, product.transpose_b, product.depth, product.columns);
    const Tensor result(ours.data(), DType::kF32, {product.rows, product.columns});
    const auto tiled = [&](kernels::Backend& backend) {
        return rate(product, [&] {
            backend.matmul(left, product.transpose_a, right, product.transpose_b, result, false);
            backend.synchronize();
        });
    };
    std::vector<double> mine, other, peer, ratio;
    for (int round = 0; round < rounds; ++round) {
        other.push_back(tiled(openblas));
        mine.push_back(tiled(onednn));
        peer.push_back(rate(product, [&] {
            omp_set_num_threads(kThreads);
            dnnl_sgemm(product.transpose_a ? 'T' : 'N', product.transpose_b ? 'T' : 'N', product.rows, product.columns,
                       product.depth, 1.0F, a.data(), product.transpose_a ? product.rows : product.depth, b.data(),
                       product.transpose_b ? product.depth : product.columns, 0.0F, theirs.data(), product.columns);
        }));
        ratio.push_back(mine.back() / peer.back());
    }
    double worst = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, double(std::abs(ours[i] - theirs[i])));
    std::printf("| %s | %ld × %ld × %ld | %.0f | %.0f | %.0f | %.2f | %.2f–%.2f | %.1e |\n", product.name,
                long(product.rows), long(product.columns), long(product.depth), median(mine), median(other),
                median(peer), median(ratio), *std::ranges::min_element(ratio), *std::ranges::max_element(ratio), worst);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
    const auto onednn = kernels::make_cpu_backend(kThreads, "avx512").value();
    const auto openblas = kernels::make_cpu_backend(kThreads, "avx2").value();
    std::puts(
        "| product | rows × columns × depth | tiles by oneDNN GFLOP/s | tiles by OpenBLAS | oneDNN alone | first ÷ "
        "last |"
        " min–max | largest difference |");
    std::puts("|---|---|---|---|---|---|---|---|");
    for (const Product& product : kProducts) compare(*onednn, *openblas, product, rounds);
}
