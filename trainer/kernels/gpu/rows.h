#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/kernels/gpu/packs.h"

// Kernels over the rows of matrices [N, C]: how the threads of a block share out rows, and sums over rows in two
// stages, partial sums by many blocks and then their sum in one order.
namespace atl::kernels::gpu {

// A team of kTeam threads has a row, and each thread up to kHeld packs of it in registers. With kHeld = 0 a thread has
// as many packs as there are and fetches them anew whenever it uses them.
template <class P, int kTeam_, int kHeld_>
struct Teams {
    static constexpr int kTeam = kTeam_, kHeld = kHeld_, kWidth = P::kWidth;
    static constexpr int kCount = kThreads / kTeam;    // teams of a block
    static constexpr int kSums = kHeld * kWidth;       // columns that a thread holds
    static constexpr int kColumnsMax = kTeam * kSums;  // that a team holds
    static constexpr int kParts = kSums > 0 ? kSums : 1;

    __device__ static int team(int thread) { return thread / kTeam; }
    // body(pack, column) for each pack of a thread; `pack` counts those that it holds.
    template <class Body>
    __device__ static void each_pack(int thread, int columns, const Body& body) {
        const int lane = thread % kTeam;
        if constexpr (kHeld > 0) {
            ATOLL_UNROLL
            for (int pack = 0; pack < kHeld; ++pack) {
                const int column = (pack * kTeam + lane) * kWidth;
                if (column < columns) body(pack, column);
            }
        } else {
            for (int column = lane * kWidth; column < columns; column += kTeam * kWidth) body(0, column);
        }
    }
};

// The packs of one row that a thread holds, as they were fetched. `at` is the index of the row's first element.
template <class P, class T>
struct Row {
    typename P::Raw packs[T::kHeld > 0 ? T::kHeld : 1];

    __device__ void fetch(const P& from, std::int64_t at, int thread, int columns) {
        if constexpr (T::kHeld > 0)
            T::each_pack(thread, columns, [&](int pack, int column) { packs[pack] = from.fetch(at + column); });
    }
    __device__ typename P::Decoded decode(const P& from, std::int64_t at, int pack, int column) const {
        if constexpr (T::kHeld > 0) return from.decode(packs[pack]);
        return from.load_pack(at + column);
    }
};

// What a thread adds up over rows for each of its columns.
template <class T>
struct ColumnSums {
    float at[T::kParts];
};

// The block's sums over its teams into to [columns].
template <class T>
__device__ void write_column_sums(const Block& block, const PerThread<ColumnSums<T>>& sums, int columns, float* to) {
    const auto each_column = [&](int thread, const auto& body) {
        T::each_pack(thread, columns, [&](int pack, int column) { body(column, sums[thread].at + pack * T::kWidth); });
    };
    if constexpr (T::kCount == 1 && T::kWidth == kPack) {
        block.each([&](int thread) {
            each_column(thread, [&](int column, const float* of_pack) { store_floats(to + column, of_pack); });
        });
    } else {
        __shared__ float of_teams[T::kCount * T::kColumnsMax];
        float* const shared = of_teams;
        block.each([&](int thread) {
            float* const of_team = shared + T::team(thread) * T::kColumnsMax;
            each_column(thread, [&](int column, const float* of_pack) {
                ATOLL_UNROLL
                for (int i = 0; i < T::kWidth; ++i) of_team[column + i] = of_pack[i];
            });
        });
        block.each_of(columns, [&](std::int64_t column) {
            float sum = 0.0F;
            for (int team = 0; team < T::kCount; ++team) sum += shared[team * T::kColumnsMax + column];
            to[column] = sum;
        });
    }
}

// Calls body.operator()<T>() with the Teams for rows of that many columns.
template <class P, class Body>
void with_teams(std::int64_t columns, const Body& body) {
    constexpr bool kIsBf16 = std::is_same_v<P, Packs<Format::kBF16, kPack>>;
    check(columns < (std::int64_t{1} << 30), "a row is too long");
    if constexpr (P::kWidth == 1) {
        body.template operator()<Teams<P, kThreads, 0>>();
    } else if (columns <= 4 * kLanes * kPack) {
        body.template operator()<Teams<P, kLanes, 4>>();
    } else if (columns <= 2 * kThreads * kPack) {
        body.template operator()<Teams<P, kThreads, 2>>();
    } else if (kIsBf16 && columns <= 4 * kThreads * kPack) {
        body.template operator()<Teams<P, kThreads, kIsBf16 ? 4 : 2>>();
    } else {
        body.template operator()<Teams<P, kThreads, 0>>();
    }
}

// Partial sums over rows: `count` rows of C columns each, in memory of the backend's own.
struct Partials {
    float* data;
    std::int64_t count, columns;
    __device__ float* row(std::int64_t number) const { return data + number * columns; }
};

// Rows of partial sums, a block each: enough for the memory of a large GPU to be busy, and the same on every GPU, since
// the order of sums follows from it.
inline constexpr std::int64_t kPartialRows = 264;

// Room for as many rows of partial sums as `wanted`, or as there is room for.
inline Partials partials_in(const tensor::Memory& memory, std::int64_t columns, std::int64_t wanted) {
    const std::int64_t fit = memory.size_bytes() / (4 * columns);
    check(fit > 0, "a row of sums is too long");
    return {reinterpret_cast<float*>(memory.data()), std::min({wanted, fit, kPartialRows}), columns};
}

// out [C] = the sum of the partials' rows, of which those of out begin at first_column: kLanes columns a block.
struct SumPartials {
    Partials partials;
    std::int64_t first_column, columns;
    Elements out;
    bool accumulate;
    __device__ void operator()(const Block& block) const {
        constexpr int kSlices = kThreads / kLanes;
        __shared__ float of_slices[kThreads];
        float* const sums = of_slices;
        const std::int64_t first = block.number() * kLanes;
        block.each([&](int thread) {
            const std::int64_t column = first + thread % kLanes;
            float sum = 0.0F;
            for (std::int64_t row = thread / kLanes; row < partials.count && column < columns; row += kSlices)
                sum += partials.row(row)[first_column + column];
            sums[thread] = sum;
        });
        block.each([&](int thread) {
            const std::int64_t column = first + thread;
            if (thread >= kLanes || column >= columns) return;
            float sum = 0.0F;
            for (int slice = 0; slice < kSlices; ++slice) sum += sums[slice * kLanes + thread];
            out.store(column, accumulate ? out.load(column) + sum : sum);
        });
    }
};

inline void launch_sum_partials(cudaStream_t stream, const Partials& partials, std::int64_t first_column,
                                const tensor::Tensor& out, bool accumulate) {
    const std::int64_t columns = out.element_count();
    launch(stream, (columns + kLanes - 1) / kLanes,
           SumPartials{partials, first_column, columns, Elements(out), accumulate});
}

// Σ_rows term(row, column), a pack at a time: kLanes packs a block, in kSlices of its rows each.
template <class P, class Term>
struct AddUpRows {
    Term term;
    std::int64_t rows;
    int columns, column_blocks;
    Partials partials;
    __device__ void operator()(const Block& block) const {
        constexpr int kSlices = kThreads / kLanes;
        __shared__ float of_slices[kThreads * P::kWidth];
        float* const sums = of_slices;
        const std::int64_t group = block.number() / column_blocks;
        const int first = static_cast<int>(block.number() % column_blocks) * kLanes * P::kWidth;
        block.each([&](int thread) {
            const int column = first + thread % kLanes * P::kWidth;
            typename P::Decoded sum{};
            if (column < columns) {
                for (std::int64_t row = group * kSlices + thread / kLanes; row < rows;
                     row += partials.count * kSlices) {
                    const typename P::Decoded values = term(row, column);
                    ATOLL_UNROLL
                    for (int i = 0; i < P::kWidth; ++i) sum.at[i] += values.at[i];
                }
            }
            ATOLL_UNROLL
            for (int i = 0; i < P::kWidth; ++i) sums[thread * P::kWidth + i] = sum.at[i];
        });
        block.each_of(kLanes * P::kWidth, [&](std::int64_t i) {
            if (first + i >= columns) return;
            float sum = 0.0F;
            for (int slice = 0; slice < kSlices; ++slice) sum += sums[slice * kLanes * P::kWidth + i];
            partials.row(group)[first + i] = sum;
        });
    }
};

// out [C] = Σ_rows term(row, column).
template <class P, class Term>
void launch_add_up_rows(cudaStream_t stream, const Term& term, std::int64_t rows, const tensor::Memory& scratch,
                        const tensor::Tensor& out, bool accumulate) {
    constexpr std::int64_t kRowsABlock = 4 * kThreads / kLanes;
    const std::int64_t columns = out.element_count();
    const std::int64_t column_blocks = (columns + kLanes * P::kWidth - 1) / (kLanes * P::kWidth);
    const Partials partials = partials_in(scratch, columns, (rows + kRowsABlock - 1) / kRowsABlock);
    launch(stream, partials.count * column_blocks,
           AddUpRows<P, Term>{term, rows, static_cast<int>(columns), static_cast<int>(column_blocks), partials});
    launch_sum_partials(stream, partials, 0, out, accumulate);
}

}  // namespace atl::kernels::gpu
