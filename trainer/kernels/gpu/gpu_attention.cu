// Attention of GpuBackend by products: the scores of some queries and all keys up to the last of them, a softmax over
// each row of scores, and the product of these probabilities with the values; the gradients likewise. Sequences, groups
// of key/value heads, the query heads that share one, and tiles of queries come one after another (attention_cut.h).

#include <algorithm>

#include "trainer/kernels/formats.h"
#include "trainer/kernels/gpu/attention_memory.h"
#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/rows.h"

namespace atl::kernels::gpu {
namespace {

using tensor::Arena;
using tensor::DType;

// Where queries, keys and values are: side by side in qkv, or the keys and values of a generation in caches.
struct Operands {
    AttentionShape shape;
    Tensor queries;         // [B·T, at least H·D]
    Tensor keys, values;    // [B·key_rows, K·D]
    Tensor segment_starts;  // [B, T]; empty: every key before a query is of its document
    std::int64_t past = 0;  // keys before the first query
    std::int64_t group() const { return shape.heads / shape.kv_heads; }
    std::int64_t key_rows() const { return keys.rows() / shape.batch; }
    float factor() const { return 1.0F / std::sqrt(static_cast<float>(shape.head_channels)); }
};

// Queries whose scores exist together: of `heads` key/value heads from `head` on, one query head each. Of a sequence
// with one query its heads are what the queries are otherwise, since all see the same keys: `is_step`.
struct Part {
    std::int64_t sequence, head, heads, member, first, queries, keys;
    bool is_step;
    bool is_first;  // of its key/value heads; it has all keys
};

void for_each_part(const Operands& of, const AttentionCut& cut, const auto& body, const auto& after_heads) {
    const AttentionShape& shape = of.shape;
    const bool is_step = shape.length == 1;
    const std::int64_t queries = is_step ? of.group() : shape.length, members = is_step ? 1 : of.group();
    for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
        for (std::int64_t head = 0; head < shape.kv_heads; head += cut.heads) {
            const std::int64_t heads = std::min(cut.heads, shape.kv_heads - head);
            for (std::int64_t member = 0; member < members; ++member) {
                for (std::int64_t end = queries; end > 0;) {
                    const std::int64_t first = (end - 1) / cut.queries * cut.queries;
                    const std::int64_t keys = of.past + (is_step ? 1 : end);
                    body(Part{sequence, head, heads, member, first, end - first, keys, is_step,
                              member == 0 && end == queries});
                    end = first;
                }
            }
            after_heads(sequence, head, heads);
        }
    }
}

// The rows of a matrix like queries or out that are the first head's of a part.
Tensor queries_of(const Operands& of, const Part& part, const Tensor& matrix) {
    const std::int64_t channels = of.shape.head_channels;
    const std::int64_t column = (part.head * of.group() + part.member) * channels;
    const Tensor row = matrix.row_range(part.sequence * of.shape.length + (part.is_step ? 0 : part.first), 1);
    if (part.is_step) return {row.at(column + part.first * channels), matrix.dtype(), {part.queries, channels}};
    return matrix.row_range(part.sequence * of.shape.length + part.first, part.queries).column_range(column, channels);
}

// The rows of a matrix like keys or values.
Tensor keys_of(const Operands& of, const Part& part, const Tensor& matrix) {
    const std::int64_t channels = of.shape.head_channels;
    return matrix.row_range(part.sequence * of.key_rows(), part.keys).column_range(part.head * channels, channels);
}

// The rows of scores of a part as a kernel has them.
struct ScoreRows {
    std::int64_t count, queries, stride, head_stride;
    std::int64_t keys;                   // that the last query sees
    std::int64_t keys_a_query;           // how many more a query sees than the one before
    int columns;                         // those of these keys, and what fills the last pack
    const std::int32_t* segment_starts;  // of these queries, or null

    struct Row {
        std::int64_t head, query, at, first_key, end_key;
        __device__ bool sees(std::int64_t key) const { return key >= first_key && key < end_key; }
    };
    __device__ Row row(std::int64_t number) const {
        const std::int64_t head = number / queries, query = number % queries;
        return {.head = head,
                .query = query,
                .at = head * head_stride + query * stride,
                .first_key = segment_starts == nullptr ? 0 : segment_starts[query],
                .end_key = keys - (queries - 1 - query) * keys_a_query};
    }

    // body(thread, number, row) in each thread of a team that has a row.
    template <class T, class Body>
    __device__ void each(const Block& block, const Body& body) const {
        block.each_alone([&](int thread) {
            const std::int64_t number = block.number() * T::kCount + T::team(thread);
            if (number < count) body(thread, number, row(number));
        });
    }
};

using Scores = Packs<Format::kF32, kPack>;

// Exponentials of scores, over that of the largest of a row, and their sums: in the place of the scores or elsewhere,
// with zeros for the keys that a query does not see.
template <class P, class T>
struct Exponentials {
    ScoreRows rows;
    Scores scores;
    P exponentials;
    float* totals;       // a row each
    float* log_sum_exp;  // of the first query; null: nobody asks
    std::int64_t log_sums_a_head;

    __device__ void operator()(const Block& block) const {
        PerThread<Row<Scores, T>> held;
        PerThread<float> largest, total;
        block.each_alone([&](int thread) {
            largest[thread] = kLowest;
            total[thread] = 0.0F;
        });
        rows.each<T>(block, [&](int thread, std::int64_t, const ScoreRows::Row& row) {
            held[thread].fetch(scores, row.at, thread, rows.columns);
            T::each_pack(thread, rows.columns, [&](int pack, int column) {
                const auto of_pack = held[thread].decode(scores, row.at, pack, column);
                ATOLL_UNROLL
                for (int i = 0; i < kPack; ++i)
                    if (row.sees(column + i) && of_pack.at[i] > largest[thread]) largest[thread] = of_pack.at[i];
            });
        });
        block.max<T::kTeam>(largest);
        rows.each<T>(block, [&](int thread, std::int64_t, const ScoreRows::Row& row) {
            T::each_pack(thread, rows.columns, [&](int pack, int column) {
                auto of_pack = held[thread].decode(scores, row.at, pack, column);
                ATOLL_UNROLL
                for (int i = 0; i < kPack; ++i) {
                    of_pack.at[i] = row.sees(column + i) ? expf(of_pack.at[i] - largest[thread]) : 0.0F;
                    total[thread] += of_pack.at[i];
                }
                exponentials.store_pack(row.at + column, of_pack);
            });
        });
        block.sum<T::kTeam>(total);
        rows.each<T>(block, [&](int thread, std::int64_t number, const ScoreRows::Row& row) {
            if (thread % T::kTeam != 0) return;
            totals[number] = total[thread];
            if (log_sum_exp != nullptr)
                log_sum_exp[row.head * log_sums_a_head + row.query] = largest[thread] + logf(total[thread]);
        });
    }
};

// Probabilities from scores, and the gradients of scores from those of probabilities; either may be in the place of
// what it is from.
template <class P, class T>
struct ScoreGradients {
    ScoreRows rows;
    Scores scores, of_probabilities;
    P probabilities, of_scores;
    const float* log_sum_exp;  // of the first query
    std::int64_t log_sums_a_head;

    __device__ void operator()(const Block& block) const {
        PerThread<Row<Scores, T>> held, of_held;
        PerThread<float> total, mean;
        block.each_alone([&](int thread) { total[thread] = mean[thread] = 0.0F; });
        // The mean of the gradients of a query's probabilities. Of out as it is kept, which is rounded, it would be
        // too far off for the gradients of queries and keys.
        rows.each<T>(block, [&](int thread, std::int64_t, const ScoreRows::Row& row) {
            held[thread].fetch(scores, row.at, thread, rows.columns);
            of_held[thread].fetch(of_probabilities, row.at, thread, rows.columns);
            T::each_pack(thread, rows.columns, [&](int pack, int column) {
                const auto p = probabilities_of(row, column, held[thread].decode(scores, row.at, pack, column));
                const auto of_p = of_held[thread].decode(of_probabilities, row.at, pack, column);
                ATOLL_UNROLL
                for (int i = 0; i < kPack; ++i) {
                    total[thread] += p.at[i];
                    if (row.sees(column + i)) mean[thread] += p.at[i] * of_p.at[i];
                }
            });
        });
        block.sum<T::kTeam>(total);
        block.sum<T::kTeam>(mean);
        rows.each<T>(block, [&](int thread, std::int64_t, const ScoreRows::Row& row) {
            const float mean_of_row = mean[thread] / total[thread];
            T::each_pack(thread, rows.columns, [&](int pack, int column) {
                const auto p = probabilities_of(row, column, held[thread].decode(scores, row.at, pack, column));
                auto gradients = of_held[thread].decode(of_probabilities, row.at, pack, column);
                ATOLL_UNROLL
                for (int i = 0; i < kPack; ++i)
                    gradients.at[i] = row.sees(column + i) ? p.at[i] * (gradients.at[i] - mean_of_row) : 0.0F;
                probabilities.store_pack(row.at + column, p);
                of_scores.store_pack(row.at + column, gradients);
            });
        });
    }

  private:
    __device__ Values<kPack> probabilities_of(const ScoreRows::Row& row, int column, Values<kPack> of_pack) const {
        const float log_sum = log_sum_exp[row.head * log_sums_a_head + row.query];
        ATOLL_UNROLL
        for (int i = 0; i < kPack; ++i) of_pack.at[i] = row.sees(column + i) ? expf(of_pack.at[i] - log_sum) : 0.0F;
        return of_pack;
    }
};

// Calls body.operator()<P, T>() with the packs of that format and the teams for rows of so many columns.
template <class Body>
void with_score_teams(DType format, std::int64_t columns, const Body& body) {
    const auto with = [&]<class P>() { with_teams<P>(columns, [&]<class T>() { body.template operator()<P, T>(); }); };
    if (format == DType::kBF16) {
        with.template operator()<Packs<Format::kBF16, kPack>>();
    } else if (format == DType::kF32) {
        with.template operator()<Packs<Format::kF32, kPack>>();
    } else {
        with.template operator()<Packs<Format::kAny, kPack>>();
    }
}

// Sums in fp32 as kernels take them beside tensors that they take by P.
template <class P>
using Sums = std::conditional_t<P::kWidth == kPack, Scores, Packs<Format::kAny, 1>>;

// out from its sums [heads · queries, D], which are over the totals too large. They are divided before they are
// rounded: exponentials lose less in a half format than probabilities do, as the largest is 1.
template <class P>
struct Divide {
    Sums<P> sums;
    const float* totals;
    P out;  // of the first query
    std::int64_t queries, channels;
    Divider by_queries;
    std::int64_t outs_a_query, outs_a_head;  // elements of out from one to the next
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t head = by_queries.quotient(static_cast<std::uint32_t>(row)), query = row - head * queries;
        auto values = sums.load_pack(row * channels + column);
        ATOLL_UNROLL
        for (float& value : values.at) value /= totals[row];
        out.store_pack(head * outs_a_head + query * outs_a_query + column, values);
    }
};

// The sums of a part's gradients of keys and values, [heads, T, D] each, into those of qkv.
template <class P>
struct StoreKeyGradients {
    Sums<P> keys, values;
    P qkv_gradient;
    std::int64_t length, channels;
    Divider by_length;
    std::int64_t columns, first_row, first_key_column, first_value_column;  // of qkv_gradient
    __device__ void operator()(std::int64_t number, std::int64_t channel) const {
        const std::int64_t head = by_length.quotient(static_cast<std::uint32_t>(number)), row = number - head * length;
        const std::int64_t at = (first_row + row) * columns + head * channels + channel;
        qkv_gradient.store_pack(at + first_key_column, keys.load_pack(number * channels + channel));
        qkv_gradient.store_pack(at + first_value_column, values.load_pack(number * channels + channel));
    }
};

// The new keys and values into the caches: an element of both a thread.
struct Append {
    Elements qkv, keys, values;
    std::int64_t length, past, key_rows, columns, first_column, width;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t row = i / width, column = i % width, from = row * columns + first_column + column;
        const std::int64_t at = (row / length * key_rows + past + row % length) * width + column;
        keys.store(at, qkv.load(from));
        values.store(at, qkv.load(from + width));
    }
};

// What is kept: the logarithms of the sums of exponentials.
Tensor log_sums_in(const AttentionShape& shape, const Tensor& kept) {
    Tensor sums(kept.data(), kStatistics, {shape.batch, shape.heads, shape.length});
    check(kept.byte_count() == sums.byte_count(), "what attention keeps has another size");
    return sums;
}

// The parts of one pass, with what all of them need.
class Pass {
  public:
    Pass(Products& products, cudaStream_t stream, const Operands& of, const AttentionCut& cut, AttentionScratch scratch)
        : products_(products), stream_(stream), of_(of), cut_(cut), scratch_(std::move(scratch)) {}

    // Without log_sum_exp nobody asks for it.
    void forward(const Tensor& out, const Tensor& log_sum_exp) const {
        const auto attend = [&](const Part& part) {
            multiply_by_keys(part, of_.queries, of_.keys, of_.factor(), scratch_.scores);
            compute_exponentials(part, log_sum_exp);
            const std::int64_t channels = of_.shape.head_channels, sums = part.queries * channels;
            products_.multiply(stream_, first_head(part, scratch_.probabilities), false, keys_of(of_, part, of_.values),
                               false, scratch_.out_sums.row_range(0, part.queries),
                               {.batch = {part.heads, score_step(), key_step(), sums}});
            divide(part, out);
        };
        for_each_part(of_, cut_, attend, [](auto...) {});
    }

    void backward(const Tensor& log_sum_exp, const Tensor& out_gradient, const Tensor& qkv_gradient) const {
        const auto add_gradients = [&](const Part& part) {
            multiply_by_keys(part, of_.queries, of_.keys, of_.factor(), scratch_.scores);
            multiply_by_keys(part, out_gradient, of_.values, 1.0F, scratch_.of_probabilities);
            compute_score_gradients(part, log_sum_exp);
            products_.multiply(stream_, first_head(part, scratch_.of_scores), false, keys_of(of_, part, of_.keys),
                               false, queries_of(of_, part, qkv_gradient),
                               {.factor = of_.factor(), .batch = {part.heads, score_step(), key_step(), query_step()}});
            multiply_by_queries(part, scratch_.of_scores, of_.queries, of_.factor(), scratch_.key_gradients);
            multiply_by_queries(part, scratch_.probabilities, out_gradient, 1.0F, scratch_.value_gradients);
        };
        for_each_part(of_, cut_, add_gradients, [&](std::int64_t sequence, std::int64_t head, std::int64_t heads) {
            store_key_gradients(sequence, head, heads, qkv_gradient);
        });
    }

  private:
    std::int64_t score_step() const { return cut_.queries * cut_.stride; }
    std::int64_t query_step() const { return of_.group() * of_.shape.head_channels; }
    std::int64_t key_step() const { return of_.shape.head_channels; }
    std::int64_t out_step(const Part& part) const {  // from one query to the next
        return (part.is_step ? 1 : of_.shape.heads) * of_.shape.head_channels;
    }
    // Of a part's scores, or what is made of them.
    static Tensor first_head(const Part& part, const Tensor& scores) {
        return scores.row_range(0, part.queries).column_range(0, part.keys);
    }
    ScoreRows rows(const Part& part) const {
        const bool all_see_the_same = part.is_step || of_.segment_starts.empty();
        const std::int64_t row = part.sequence * of_.shape.length + part.first;
        return {.count = part.heads * part.queries,
                .queries = part.queries,
                .stride = cut_.stride,
                .head_stride = score_step(),
                .keys = part.keys,
                .keys_a_query = part.is_step ? 0 : 1,
                .columns = static_cast<int>((part.keys + kPack - 1) / kPack * kPack),
                .segment_starts = all_see_the_same ? nullptr : of_.segment_starts.i32() + row};
    }
    float* log_sums(const Part& part, const Tensor& log_sum_exp) const {
        if (log_sum_exp.empty()) return nullptr;
        const std::int64_t head = part.head * of_.group() + part.member;
        return log_sum_exp.f32() + (part.sequence * of_.shape.heads + head) * of_.shape.length + part.first;
    }

    // [queries, keys] = a like queries · b like keys, transposed.
    void multiply_by_keys(const Part& part, const Tensor& a, const Tensor& b, float factor,
                          const Tensor& scores) const {
        products_.multiply(stream_, queries_of(of_, part, a), false, keys_of(of_, part, b), true,
                           first_head(part, scores),
                           {.factor = factor, .batch = {part.heads, query_step(), key_step(), score_step()}});
    }
    // Into, or onto, sums of a part [heads · T, D]: scores, transposed · b like queries.
    void multiply_by_queries(const Part& part, const Tensor& scores, const Tensor& b, float factor,
                             const Tensor& sums) const {
        products_.multiply(
            stream_, first_head(part, scores), true, queries_of(of_, part, b), false, sums.row_range(0, part.keys),
            {.factor = factor,
             .accumulate = !part.is_first,
             .batch = {part.heads, score_step(), query_step(), of_.shape.length * of_.shape.head_channels}});
    }
    void divide(const Part& part, const Tensor& out) const {
        const std::int64_t channels = of_.shape.head_channels;
        const Tensor to = queries_of(of_, part, out);
        with_packs(channels, {to}, [&]<class P>() {
            launch_in_rows<P>(stream_, part.heads * part.queries, channels,
                              Divide<P>{.sums = Sums<P>(scratch_.out_sums),
                                        .totals = scratch_.totals.f32(),
                                        .out = P(to),
                                        .queries = part.queries,
                                        .channels = channels,
                                        .by_queries = Divider(part.queries),
                                        .outs_a_query = out_step(part),
                                        .outs_a_head = query_step()});
        });
    }
    std::int64_t log_sums_a_head() const { return of_.group() * of_.shape.length; }
    void compute_exponentials(const Part& part, const Tensor& log_sum_exp) const {
        const ScoreRows of = rows(part);
        with_score_teams(of_.shape.format, of.columns, [&]<class P, class T>() {
            launch(stream_, blocks<T>(of),
                   Exponentials<P, T>{.rows = of,
                                      .scores = Scores(scratch_.scores),
                                      .exponentials = P(scratch_.probabilities),
                                      .totals = scratch_.totals.f32(),
                                      .log_sum_exp = log_sums(part, log_sum_exp),
                                      .log_sums_a_head = log_sums_a_head()});
        });
    }
    void compute_score_gradients(const Part& part, const Tensor& log_sum_exp) const {
        const ScoreRows of = rows(part);
        with_score_teams(of_.shape.format, of.columns, [&]<class P, class T>() {
            launch(stream_, blocks<T>(of),
                   ScoreGradients<P, T>{.rows = of,
                                        .scores = Scores(scratch_.scores),
                                        .of_probabilities = Scores(scratch_.of_probabilities),
                                        .probabilities = P(scratch_.probabilities),
                                        .of_scores = P(scratch_.of_scores),
                                        .log_sum_exp = log_sums(part, log_sum_exp),
                                        .log_sums_a_head = log_sums_a_head()});
        });
    }
    template <class T>
    static std::int64_t blocks(const ScoreRows& of) {
        return (of.count + T::kCount - 1) / T::kCount;
    }
    void store_key_gradients(std::int64_t sequence, std::int64_t head, std::int64_t heads,
                             const Tensor& qkv_gradient) const {
        const AttentionShape& shape = of_.shape;
        with_packs(shape.head_channels, {qkv_gradient}, [&]<class P>() {
            launch_in_rows<P>(stream_, heads * shape.length, shape.head_channels,
                              StoreKeyGradients<P>{
                                  .keys = Sums<P>(scratch_.key_gradients),
                                  .values = Sums<P>(scratch_.value_gradients),
                                  .qkv_gradient = P(qkv_gradient),
                                  .length = shape.length,
                                  .channels = shape.head_channels,
                                  .by_length = Divider(shape.length),
                                  .columns = shape.qkv_columns(),
                                  .first_row = sequence * shape.length,
                                  .first_key_column = (shape.heads + head) * shape.head_channels,
                                  .first_value_column = (shape.heads + shape.kv_heads + head) * shape.head_channels});
        });
    }

    Products& products_;
    cudaStream_t stream_;
    const Operands& of_;
    const AttentionCut& cut_;
    const AttentionScratch scratch_;
};

void check_shape(const AttentionShape& shape, const Tensor& qkv, const Tensor& out) {
    const std::int64_t rows = shape.batch * shape.length;
    check(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key/value heads");
    check_matrix(qkv, rows, shape.qkv_columns());
    check(qkv.dtype() == shape.format, "qkv has another format");
    check_matrix(out, rows, shape.heads * shape.head_channels);
}

Operands side_by_side(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts) {
    const std::int64_t queries = shape.heads * shape.head_channels, width = shape.kv_heads * shape.head_channels;
    return {.shape = shape,
            .queries = qkv,
            .keys = qkv.column_range(queries, width),
            .values = qkv.column_range(queries + width, width),
            .segment_starts = segment_starts};
}

}  // namespace

std::int64_t GpuBackend::attention_kept_bytes(const AttentionShape& shape) const {
    return gpu::attention_kept_bytes(shape);
}

std::int64_t GpuBackend::attention_workspace_bytes(const AttentionShape& shape) const {
    return gpu::attention_workspace_bytes(shape, sdpa_library());
}

std::int64_t GpuBackend::attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max) const {
    return gpu::attention_cached_workspace_bytes(shape, keys_max);
}

void GpuBackend::attention_forward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                                   const Tensor& out, const Tensor& kept, Arena& workspace) {
    check_shape(shape, qkv, out);
    const Tensor log_sums = log_sums_in(shape, kept);
    const Sdpa::Tensors tensors{.qkv = qkv, .out = out, .log_sums = log_sums};
    if (attends_by_sdpa(shape, Sdpa::Pass::kForward, documents, tensors, {}, workspace)) return;
    const Arena::Scope scope(workspace);
    const Operands of = side_by_side(shape, qkv, documents.segment_starts);
    const AttentionCut cut = cut_of(shape, shape.length, false);
    Pass(*products_, compute(), of, cut, allocate_attention_scratch(workspace, shape, cut, false))
        .forward(out, log_sums);
}

void GpuBackend::attention_backward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                                    const Tensor& out, const Tensor& kept, const Tensor& out_gradient,
                                    const Rotation& rotation, const Tensor& qkv_gradient, Arena& workspace) {
    check_shape(shape, qkv, out);
    check_shape(shape, qkv_gradient, out_gradient);
    const Tensor log_sums = log_sums_in(shape, kept);
    const Sdpa::Tensors tensors{.qkv = qkv, .out = out, .log_sums = log_sums, .out_gradient = out_gradient};
    if (!attends_by_sdpa(shape, Sdpa::Pass::kBackward, documents, tensors, qkv_gradient, workspace)) {
        const Arena::Scope scope(workspace);
        const Operands of = side_by_side(shape, qkv, documents.segment_starts);
        const AttentionCut cut = cut_of(shape, shape.length, true);
        Pass(*products_, compute(), of, cut, allocate_attention_scratch(workspace, shape, cut, true))
            .backward(log_sums, out_gradient, qkv_gradient);
    }
    if (!rotation.table.empty()) rope(shape, rotation.table, rotation.positions, qkv_gradient, true);
}

void GpuBackend::attention_cached(const AttentionShape& shape, const Tensor& qkv, std::int64_t past,
                                  const Tensor& key_cache, const Tensor& value_cache, const Tensor& out,
                                  Arena& workspace) {
    check_shape(shape, qkv, out);
    const std::int64_t width = shape.kv_heads * shape.head_channels, keys_max = key_cache.rows() / shape.batch;
    check(past + shape.length <= keys_max && key_cache.columns() == width && value_cache.columns() == width,
          "the key/value cache is too small");
    check(key_cache.dtype() == qkv.dtype() && value_cache.dtype() == qkv.dtype(), "the cache has another format");
    const Append append{.qkv = Elements(qkv),
                        .keys = Elements(key_cache),
                        .values = Elements(value_cache),
                        .length = shape.length,
                        .past = past,
                        .key_rows = keys_max,
                        .columns = shape.qkv_columns(),
                        .first_column = shape.heads * shape.head_channels,
                        .width = width};
    launch_for_each(compute(), qkv.rows() * width, append);
    const Arena::Scope scope(workspace);
    const Operands of{
        .shape = shape, .queries = qkv, .keys = key_cache, .values = value_cache, .segment_starts = {}, .past = past};
    const AttentionCut cut = cut_of(shape, past + shape.length, false);
    Pass(*products_, compute(), of, cut, allocate_attention_scratch(workspace, shape, cut, false)).forward(out, {});
}

}  // namespace atl::kernels::gpu
