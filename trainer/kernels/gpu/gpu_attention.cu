// Attention of GpuBackend, straight from the definition: a query a block, with the keys it sees in tiles, then for the
// gradients of keys and values a key a block, with the queries that see it.

#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/launch.h"

namespace atl::kernels::gpu {
namespace {

constexpr std::int64_t kChannelsMax = 256;  // of a head: what a block keeps of a row

// Where queries, keys and values are: side by side in qkv, or the keys and values of a generation in caches.
struct Operands {
    Elements qkv, keys, values;
    const std::int32_t* segment_starts;  // null: every key before a query is of its document
    std::int64_t heads, kv_heads, channels;
    std::int64_t length, past;                          // of queries; of keys before the first of them
    std::int64_t key_rows, key_columns;                 // of a sequence; of the matrices of keys and values
    std::int64_t first_key_column, first_value_column;  // of the first head
    __device__ std::int64_t group() const { return heads / kv_heads; }
    __device__ std::int64_t query_at(std::int64_t row, std::int64_t head) const {
        return row * (heads + 2 * kv_heads) * channels + head * channels;
    }
    __device__ std::int64_t out_at(std::int64_t row, std::int64_t head) const {
        return (row * heads + head) * channels;
    }
    __device__ std::int64_t key_at(std::int64_t sequence, std::int64_t key, std::int64_t kv_head) const {
        return (sequence * key_rows + key) * key_columns + first_key_column + kv_head * channels;
    }
    __device__ std::int64_t value_at(std::int64_t sequence, std::int64_t key, std::int64_t kv_head) const {
        return (sequence * key_rows + key) * key_columns + first_value_column + kv_head * channels;
    }
    __device__ float factor() const { return 1.0F / sqrtf(static_cast<float>(channels)); }
};

__device__ float dot(const Elements& a, std::int64_t a_at, const Elements& b, std::int64_t b_at, std::int64_t count) {
    float sum = 0.0F;
    for (std::int64_t c = 0; c < count; ++c) sum += a.load(a_at + c) * b.load(b_at + c);
    return sum;
}

// A query of one head, by its number among [B, H, T], and the keys [first_key, end_key) that it sees.
struct Query {
    __device__ Query(const Operands& of, std::int64_t number)
        : sequence(number / of.length / of.heads),
          head(number / of.length % of.heads),
          kv_head(head / of.group()),
          row(sequence * of.length + number % of.length),
          first_key(of.segment_starts == nullptr ? 0 : of.segment_starts[row]),
          end_key(of.past + number % of.length + 1) {}
    std::int64_t sequence, head, kv_head, row, first_key, end_key;
};

// The softmax is taken in one pass over the keys: what is summed so far is scaled down when a larger score comes.
struct Forward {
    Operands of;
    Elements out;
    float* log_sum_exp;  // null: nobody asks
    __device__ void operator()(const Block& block) const {
        __shared__ float of_tile[kThreads];
        __shared__ float of_channels[kChannelsMax];
        float *const scores = of_tile, *const sums = of_channels;
        const Query query(of, block.number());
        const std::int64_t at = of.query_at(query.row, query.head);
        float largest = kLowest, total = 0.0F;
        block.each_of(of.channels, [&](std::int64_t c) { sums[c] = 0.0F; });
        for (std::int64_t key = query.first_key; key < query.end_key; key += kThreads) {
            const std::int64_t count = query.end_key - key < kThreads ? query.end_key - key : kThreads;
            block.each_of(count, [&](std::int64_t i) {
                const std::int64_t key_at = of.key_at(query.sequence, key + i, query.kv_head);
                scores[i] = of.factor() * dot(of.qkv, at, of.keys, key_at, of.channels);
            });
            const float of_these = block.max(count, [&](std::int64_t i) { return scores[i]; });
            const float now = of_these > largest ? of_these : largest, shrink = expf(largest - now);
            block.each_of(count, [&](std::int64_t i) { scores[i] = expf(scores[i] - now); });
            total = total * shrink + block.sum(count, [&](std::int64_t i) { return scores[i]; });
            block.each_of(of.channels, [&](std::int64_t c) {
                sums[c] =
                    sums[c] * shrink + sum_in_runs(count, [&](std::int64_t i) {
                        return scores[i] * of.values.load(of.value_at(query.sequence, key + i, query.kv_head) + c);
                    });
            });
            largest = now;
        }
        block.each_of(of.channels,
                      [&](std::int64_t c) { out.store(of.out_at(query.row, query.head) + c, sums[c] / total); });
        if (log_sum_exp != nullptr) block.once([&] { log_sum_exp[block.number()] = largest + logf(total); });
    }
};

// What the gradients of scores are made of.
struct Gradients {
    Operands of;
    Elements out_gradient, qkv_gradient;
    const float* log_sum_exp;
    float* deltas;  // [B, H, T]: the mean of out gradient · value over a query's keys, by their probabilities

    __device__ float probability(const Query& query, std::int64_t key, float log_sum) const {
        const std::int64_t key_at = of.key_at(query.sequence, key, query.kv_head);
        return expf(of.factor() * dot(of.qkv, of.query_at(query.row, query.head), of.keys, key_at, of.channels) -
                    log_sum);
    }
    // Out gradient · value.
    __device__ float of_probability(const Query& query, std::int64_t key) const {
        return dot(out_gradient, of.out_at(query.row, query.head), of.values,
                   of.value_at(query.sequence, key, query.kv_head), of.channels);
    }
};

struct QueryGradient {
    Gradients g;
    __device__ void operator()(const Block& block) const {
        __shared__ float of_tile[kThreads];
        __shared__ float of_channels[kChannelsMax];
        float *const of_scores = of_tile, *const sums = of_channels;
        const Operands& of = g.of;
        const Query query(of, block.number());
        const float log_sum = g.log_sum_exp[block.number()];
        // From the probabilities, over their own sum, as the CPU does: out was rounded when it was written.
        const std::int64_t keys = query.end_key - query.first_key;
        const float total =
            block.sum(keys, [&](std::int64_t i) { return g.probability(query, query.first_key + i, log_sum); });
        const float delta = block.sum(keys, [&](std::int64_t i) {
            const std::int64_t key = query.first_key + i;
            return g.probability(query, key, log_sum) * g.of_probability(query, key);
        }) / total;
        block.once([&] { g.deltas[block.number()] = delta; });
        block.each_of(of.channels, [&](std::int64_t c) { sums[c] = 0.0F; });
        for (std::int64_t key = query.first_key; key < query.end_key; key += kThreads) {
            const std::int64_t count = query.end_key - key < kThreads ? query.end_key - key : kThreads;
            block.each_of(count, [&](std::int64_t i) {
                of_scores[i] =
                    g.probability(query, key + i, log_sum) * (g.of_probability(query, key + i) - delta) * of.factor();
            });
            block.each_of(of.channels, [&](std::int64_t c) {
                sums[c] += sum_in_runs(count, [&](std::int64_t i) {
                    return of_scores[i] * of.keys.load(of.key_at(query.sequence, key + i, query.kv_head) + c);
                });
            });
        }
        block.each_of(of.channels,
                      [&](std::int64_t c) { g.qkv_gradient.store(of.query_at(query.row, query.head) + c, sums[c]); });
    }
};

// A key by its number among [B, K, T]; its pairs are the queries of its group from its own place on.
struct KeyGradient {
    Gradients g;
    __device__ void operator()(const Block& block) const {
        __shared__ float of_tile[2 * kThreads];
        __shared__ float of_channels[2 * kChannelsMax];
        float *const probabilities = of_tile, *const of_scores = of_tile + kThreads;
        float *const of_key = of_channels, *const of_value = of_channels + kChannelsMax;
        const Operands& of = g.of;
        const std::int64_t key = block.number() % of.length, kv_head = block.number() / of.length % of.kv_heads;
        const std::int64_t sequence = block.number() / of.length / of.kv_heads, queries = of.length - key;
        const auto number = [&](std::int64_t pair) {
            const std::int64_t head = kv_head * of.group() + pair / queries;
            return (sequence * of.heads + head) * of.length + key + pair % queries;
        };
        block.each_of(2 * kChannelsMax, [&](std::int64_t c) { of_channels[c] = 0.0F; });
        for (std::int64_t first = 0; first < of.group() * queries; first += kThreads) {
            const std::int64_t left = of.group() * queries - first, count = left < kThreads ? left : kThreads;
            block.each_of(count, [&](std::int64_t i) {
                const Query query(of, number(first + i));
                const bool sees = query.first_key <= key;
                const float p = sees ? g.probability(query, key, g.log_sum_exp[number(first + i)]) : 0.0F;
                probabilities[i] = p;
                of_scores[i] =
                    sees ? p * (g.of_probability(query, key) - g.deltas[number(first + i)]) * of.factor() : 0.0F;
            });
            block.each_of(of.channels, [&](std::int64_t c) {
                of_key[c] += sum_in_runs(count, [&](std::int64_t i) {
                    const Query query(of, number(first + i));
                    return of_scores[i] * of.qkv.load(of.query_at(query.row, query.head) + c);
                });
                of_value[c] += sum_in_runs(count, [&](std::int64_t i) {
                    const Query query(of, number(first + i));
                    return probabilities[i] * g.out_gradient.load(of.out_at(query.row, query.head) + c);
                });
            });
        }
        block.each_of(of.channels, [&](std::int64_t c) {
            g.qkv_gradient.store(of.key_at(sequence, key, kv_head) + c, of_key[c]);
            g.qkv_gradient.store(of.value_at(sequence, key, kv_head) + c, of_value[c]);
        });
    }
};

// The new keys and values into the caches: an element of both a thread.
struct Append {
    Operands of;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t width = of.kv_heads * of.channels, row = i / width, column = i % width;
        const std::int64_t from = of.query_at(row, of.heads) + column;
        const std::int64_t at = (row / of.length * of.key_rows + of.past + row % of.length) * width + column;
        of.keys.store(at, of.qkv.load(from));
        of.values.store(at, of.qkv.load(from + width));
    }
};

void check_shape(const AttentionShape& shape, const Tensor& qkv, const Tensor& out) {
    const std::int64_t rows = shape.batch * shape.length;
    check(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key/value heads");
    check(shape.head_channels <= kChannelsMax, "attention on a GPU takes heads of at most 256 channels");
    check_matrix(qkv, rows, shape.qkv_columns());
    check(qkv.dtype() == shape.format, "qkv has another format");
    check_count(out, rows * shape.heads * shape.head_channels);
}

Operands side_by_side(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts) {
    const std::int64_t width = shape.head_channels;
    return {.qkv = Elements(qkv),
            .keys = Elements(qkv),
            .values = Elements(qkv),
            .segment_starts = segment_starts.empty() ? nullptr : segment_starts.i32(),
            .heads = shape.heads,
            .kv_heads = shape.kv_heads,
            .channels = width,
            .length = shape.length,
            .past = 0,
            .key_rows = shape.length,
            .key_columns = shape.qkv_columns(),
            .first_key_column = shape.heads * width,
            .first_value_column = (shape.heads + shape.kv_heads) * width};
}

std::int64_t query_count(const AttentionShape& shape) {
    return shape.batch * shape.heads * shape.length;
}

}  // namespace

std::int64_t GpuBackend::attention_workspace_bytes(const AttentionShape& shape) const {
    return tensor::aligned(tensor::size_bytes(tensor::DType::kF32, query_count(shape)));
}

std::int64_t GpuBackend::attention_cached_workspace_bytes(const AttentionShape&, std::int64_t) const {
    return 0;
}

void GpuBackend::attention_forward(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                   const Tensor& out, const Tensor& log_sum_exp, tensor::Arena&) {
    check_shape(shape, qkv, out);
    check_count(log_sum_exp, query_count(shape));
    launch(compute(), query_count(shape),
           Forward{side_by_side(shape, qkv, segment_starts), Elements(out), log_sum_exp.f32()});
}

void GpuBackend::attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                    const Tensor&, const Tensor& log_sum_exp, const Tensor& out_gradient,
                                    const Tensor& qkv_gradient, tensor::Arena& workspace) {
    check_shape(shape, qkv, out_gradient);
    check_matrix(qkv_gradient, qkv.rows(), qkv.columns());
    const tensor::Arena::Scope scope(workspace);
    std::byte* const deltas = workspace.allocate_bytes(tensor::Category::kWorkspace, attention_workspace_bytes(shape));
    const Gradients gradients{side_by_side(shape, qkv, segment_starts), Elements(out_gradient), Elements(qkv_gradient),
                              log_sum_exp.f32(), reinterpret_cast<float*>(deltas)};
    launch(compute(), query_count(shape), QueryGradient{gradients});
    launch(compute(), shape.batch * shape.kv_heads * shape.length, KeyGradient{gradients});
}

void GpuBackend::attention_cached(const AttentionShape& shape, const Tensor& qkv, std::int64_t past,
                                  const Tensor& key_cache, const Tensor& value_cache, const Tensor& out,
                                  tensor::Arena&) {
    check_shape(shape, qkv, out);
    const std::int64_t width = shape.kv_heads * shape.head_channels, keys_max = key_cache.rows() / shape.batch;
    check(past + shape.length <= keys_max && key_cache.columns() == width && value_cache.columns() == width,
          "the key/value cache is too small");
    check(key_cache.dtype() == qkv.dtype() && value_cache.dtype() == qkv.dtype(), "the cache has another format");
    Operands of = side_by_side(shape, qkv, {});
    of.keys = Elements(key_cache);
    of.values = Elements(value_cache);
    of.past = past;
    of.key_rows = keys_max;
    of.key_columns = width;
    of.first_key_column = of.first_value_column = 0;
    launch_for_each(compute(), qkv.rows() * width, Append{of});
    launch(compute(), query_count(shape), Forward{of, Elements(out), nullptr});
}

}  // namespace atl::kernels::gpu
