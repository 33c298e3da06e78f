// The optimizer steps of GpuBackend, and the norm of the gradients that they take: all ranges of a step in a few
// launches.

#include <algorithm>
#include <cmath>

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/spans.h"
#include "trainer/kernels/operands.h"
#include "trainer/tensor/philox.h"

namespace atl::kernels::gpu {
namespace {

// Up with the probability that makes the mean exact. NaN stays, which a carry would make a number.
__device__ std::uint32_t round_to_bf16(float value, std::uint32_t random) {
    if (std::isnan(value)) return 0x7fc0;
    return (__builtin_bit_cast(std::uint32_t, value) + (random & 0xffffU)) >> 16;
}

// A range as kernels take it. A pack of four elements or more begins at a whole block of random numbers.
template <class P>
struct Range {
    P weights, gradients, first, second, stored;
    std::uint64_t seed;
    std::int64_t first_element, count;
    bool decays;
};

// A random number for each element of a pack.
template <class P>
struct Draws {
    std::uint32_t at[P::kWidth];
    __device__ Draws(std::int64_t element, std::uint64_t updates, std::uint64_t key) {
        ATOLL_UNROLL
        for (int i = 0; i < P::kWidth; i += 4) {
            std::uint32_t words[4];
            tensor::philox(static_cast<std::uint64_t>((element + i) / 4), updates, key, words);
            ATOLL_UNROLL
            for (int word = 0; word < 4; ++word) {
                if constexpr (P::kWidth == 1) {
                    if (element % 4 == word) at[0] = words[word];
                } else {
                    at[i + word] = words[word];
                }
            }
        }
    }
};

// What is kept in bf16 is rounded by 16 bits of its draw, those from `bit` on.
template <class P>
__device__ void keep(const P& state, std::int64_t at, const typename P::Decoded& values, const Draws<P>& draws,
                     int bit) {
    if constexpr (P::kWidth == 1) {
        state.store_bits(at, static_cast<std::uint16_t>(round_to_bf16(values.at[0], draws.at[0] >> bit)));
    } else {
        typename P::Raw raw{};
        ATOLL_UNROLL
        for (int i = 0; i < P::kWidth; ++i)
            raw.words[0].at[i / 2] |= round_to_bf16(values.at[i], draws.at[i] >> bit) << (i % 2 * 16);
        state.put(at, raw);
    }
}

// The moments of a pack, after a step: both by one draw.
template <class P>
__device__ void keep_moments(const Range<P>& range, std::int64_t at, std::uint64_t updates,
                             const typename P::Decoded& first, const typename P::Decoded& second) {
    const bool keeps_first = !range.first.empty(), keeps_second = !range.second.empty();
    const bool rounds_first = keeps_first && !range.first.is_wide();
    const bool rounds_second = keeps_second && !range.second.is_wide();
    if (keeps_first && !rounds_first) range.first.store_pack(at, first);
    if (keeps_second && !rounds_second) range.second.store_pack(at, second);
    if (!rounds_first && !rounds_second) return;
    const Draws<P> draws(range.first_element + at, updates, range.seed);
    if (rounds_first) keep(range.first, at, first, draws, 0);
    if (rounds_second) keep(range.second, at, second, draws, 16);
}

template <class P>
__device__ void keep_weights(const Range<P>& range, std::int64_t at, std::uint64_t updates,
                             const typename P::Decoded& weights) {
    if (range.weights.is_wide()) {
        range.weights.store_pack(at, weights);
    } else {
        keep(range.weights, at, weights, Draws<P>(range.first_element + at, updates, range.seed ^ kOfWeights), 0);
    }
    if (!range.stored.empty()) range.stored.store_pack(at, weights);
}

// The step size and what the root of the second moment is multiplied by, once for all elements.
struct CorrectBias {
    const StepScalars* step;
    float learning_rate, beta1, beta2;
    float* corrections;
    __device__ void operator()(const Block& block) const {
        block.once([&] {
            const double first = 1.0 - pow(static_cast<double>(beta1), step->updates);
            const double second = 1.0 - pow(static_cast<double>(beta2), step->updates);
            corrections[0] = static_cast<float>(static_cast<double>(learning_rate) / first);
            corrections[1] = static_cast<float>(1.0 / sqrt(second));
        });
    }
};

template <class P>
struct AdamW {
    Spans<Range<P>, P::kWidth> spans;
    const StepScalars* step;
    float decay, beta1, beta2, epsilon;
    const float* corrections;

    __device__ void operator()(const Block& block) const {
        if (step->is_update == 0) return;
        const int chunk = static_cast<int>(block.number()), number = spans.find(chunk);
        const Range<P>& range = spans.ranges[number];
        block.each_alone([&](int thread) {
            spans.each_pack(range, chunk - spans.first_chunks[number], thread,
                            [&](std::int64_t at) { update(range, at); });
        });
    }

  private:
    __device__ void update(const Range<P>& range, std::int64_t at) const {
        const auto of_weights = range.weights.fetch(at), of_gradients = range.gradients.fetch(at);
        const auto of_first = range.first.fetch(at), of_second = range.second.fetch(at);
        const float factor = static_cast<float>(step->factor), step_size = corrections[0], root_bias = corrections[1];
        const float this_decay = range.decays ? decay : 0.0F;
        auto weights = range.weights.decode(of_weights), first = range.first.decode(of_first),
             second = range.second.decode(of_second);
        const auto gradients = range.gradients.decode(of_gradients);
        ATOLL_UNROLL
        for (int i = 0; i < P::kWidth; ++i) {
            const float gradient = gradients.at[i] * factor, weight = weights.at[i];
            const float m = beta1 * first.at[i] + (1.0F - beta1) * gradient;
            const float v = beta2 * second.at[i] + (1.0F - beta2) * gradient * gradient;
            first.at[i] = m;
            second.at[i] = v;
            weights.at[i] = weight - (this_decay * weight + step_size * (m / (sqrtf(v) * root_bias + epsilon)));
        }
        const auto updates = static_cast<std::uint64_t>(step->updates);
        keep_moments(range, at, updates, first, second);
        keep_weights(range, at, updates, weights);
    }
};

template <class P>
struct Sgd {
    Spans<Range<P>, P::kWidth> spans;
    const StepScalars* step;
    float decay, rate, momentum;
    bool uses_factor;

    __device__ void operator()(const Block& block) const {
        if (step->is_update == 0) return;
        const int chunk = static_cast<int>(block.number()), number = spans.find(chunk);
        const Range<P>& range = spans.ranges[number];
        block.each_alone([&](int thread) {
            spans.each_pack(range, chunk - spans.first_chunks[number], thread,
                            [&](std::int64_t at) { update(range, at); });
        });
    }

  private:
    __device__ void update(const Range<P>& range, std::int64_t at) const {
        const float factor = uses_factor ? static_cast<float>(step->factor) : 1.0F;
        const float this_decay = range.decays ? decay : 0.0F;
        auto weights = range.weights.load_pack(at), moved = range.gradients.load_pack(at);
        typename P::Decoded before{};
        if (!range.first.empty()) before = range.first.load_pack(at);
        ATOLL_UNROLL
        for (int i = 0; i < P::kWidth; ++i) {
            const float gradient = factor * moved.at[i], weight = weights.at[i];
            moved.at[i] = range.first.empty() ? gradient : momentum * before.at[i] + gradient;
            weights.at[i] = weight - (this_decay * weight + rate * moved.at[i]);
        }
        const auto updates = static_cast<std::uint64_t>(step->updates);
        keep_moments(range, at, updates, moved, {});
        keep_weights(range, at, updates, weights);
    }
};

template <class P>
struct Nesterov {
    Spans<Range<P>, P::kWidth> spans;
    const StepScalars* step;
    float momentum;

    __device__ void operator()(const Block& block) const {
        if (step->is_update == 0) return;
        const int chunk = static_cast<int>(block.number()), number = spans.find(chunk);
        const Range<P>& range = spans.ranges[number];
        block.each_alone([&](int thread) {
            spans.each_pack(range, chunk - spans.first_chunks[number], thread,
                            [&](std::int64_t at) { update(range, at); });
        });
    }

  private:
    __device__ void update(const Range<P>& range, std::int64_t at) const {
        const float factor = static_cast<float>(step->factor);
        const auto of_gradients = range.gradients.fetch(at), of_first = range.first.fetch(at);
        auto direction = range.gradients.decode(of_gradients), first = range.first.decode(of_first);
        ATOLL_UNROLL
        for (int i = 0; i < P::kWidth; ++i) {
            const float gradient = (1.0F - momentum) * (factor * direction.at[i]);
            first.at[i] = momentum * first.at[i] + gradient;
            direction.at[i] = momentum * first.at[i] + gradient;
        }
        const auto updates = static_cast<std::uint64_t>(step->updates);
        keep_moments(range, at, updates, first, {});
        keep_weights(range, at, updates, direction);
    }
};

struct FinishStep {
    StepRules rules;
    StepScalars* scalars;
    __device__ void operator()(const Block& block) const {
        block.once([&] { finish_step(rules, *scalars); });
    }
};

template <class P>
struct SquaredRange {
    P x;
    std::int64_t count;
};

// Each block's sum over its chunks, in fp64.
template <class P>
struct SumOfSquares {
    Spans<SquaredRange<P>, P::kWidth> spans;
    std::int64_t blocks;
    double* partial;  // to which it is added

    __device__ void operator()(const Block& block) const {
        PerThread<double> sums;
        block.each_alone([&](int thread) { sums[thread] = 0.0; });
        int number = 0;
        for (std::int64_t next = block.number(); next < spans.chunks(); next += blocks) {
            const int chunk = static_cast<int>(next);
            number = spans.find(chunk, number);
            const SquaredRange<P>& range = spans.ranges[number];
            block.each_alone([&](int thread) {
                spans.each_pack(range, chunk - spans.first_chunks[number], thread, [&](std::int64_t at) {
                    const auto values = range.x.load_pack(at);
                    ATOLL_UNROLL
                    for (const float value : values.at)
                        sums[thread] += static_cast<double>(value) * static_cast<double>(value);
                });
            });
        }
        block.combine<kThreads>(sums, [](double a, double b) { return a + b; });
        block.each_alone([&](int thread) {
            if (thread == 0) partial[block.number()] += sums[thread];
        });
    }
};

struct AddPartials {
    const double* partial;
    std::int64_t count;
    double* into;
    bool accumulate;
    __device__ void operator()(const Block& block) const {
        const double sum = block.reduce(
            count, 0.0, [&](std::int64_t i) { return partial[i]; }, [](double a, double b) { return a + b; });
        block.once([&] { *into = accumulate ? *into + sum : sum; });
    }
};

// The first element from which on all these tensors lie as packs do, and random numbers begin a block; kPack: none.
std::int64_t first_whole_pack(std::initializer_list<Tensor> tensors, std::int64_t first_element) {
    const auto fits = [&](std::int64_t begin) {
        return (first_element + begin) % 4 == 0 && std::ranges::all_of(tensors, [&](const Tensor& one) {
                   return one.empty() || reinterpret_cast<std::uintptr_t>(one.at(begin)) % kPackAlignment == 0;
               });
    };
    std::int64_t begin = 0;
    while (begin < kPack && !fits(begin)) ++begin;
    return begin;
}

using Vectors = Packs<Format::kAny, kPack>;
using Singles = Packs<Format::kAny, 1>;

// Ranges of `count` elements cut into whole packs and what is before and after these, which goes an element at a time.
template <template <class> class Of>
struct CutRanges {
    std::vector<Of<Vectors>> whole;
    std::vector<Of<Singles>> rest;

    // make.operator()<P>(begin, count) is a part of a range.
    template <class Make>
    void add(std::int64_t count, std::int64_t first_whole, const Make& make) {
        const std::int64_t begin = std::min(count, first_whole);
        const std::int64_t end = first_whole == kPack ? begin : begin + (count - begin) / kPack * kPack;
        if (begin > 0) rest.push_back(make.template operator()<Singles>(0, begin));
        if (end > begin) whole.push_back(make.template operator()<Vectors>(begin, end - begin));
        if (count > end) rest.push_back(make.template operator()<Singles>(end, count - end));
    }
};

CutRanges<Range> cut(std::span<const OptimizerRange> ranges) {
    CutRanges<Range> all;
    for (const OptimizerRange& range : ranges) {
        check_range(range);
        const std::int64_t first =
            first_whole_pack({range.weights, range.gradients, range.first_moments, range.second_moments, range.stored},
                             range.first_element);
        all.add(range.weights.element_count(), first, [&]<class P>(std::int64_t begin, std::int64_t count) {
            const auto part = [&](const Tensor& x) {
                return P(x.empty() ? x : Tensor(x.at(begin), x.dtype(), {count}));
            };
            return Range<P>{part(range.weights),
                            part(range.gradients),
                            part(range.first_moments),
                            part(range.second_moments),
                            part(range.stored),
                            range.seed,
                            range.first_element + begin,
                            count,
                            range.decays};
        });
    }
    return all;
}

// Launches make(spans) over all ranges.
template <class P, template <class> class Of, class Make>
void launch_over(cudaStream_t stream, const std::vector<Of<P>>& ranges, const Make& make) {
    for_spans<P::kWidth>(ranges, [&](const auto& spans, std::int64_t chunks) {
        launch(stream, chunks, make.template operator()<P>(spans));
    });
}

}  // namespace

void GpuBackend::sum_of_squares(std::span<const Tensor> all, const Tensor& into, bool accumulate) {
    CutRanges<SquaredRange> ranges;
    for (const Tensor& x : all) {
        check_count(x, x.element_count());
        ranges.add(x.element_count(), first_whole_pack({x}, 0), [&]<class P>(std::int64_t begin, std::int64_t count) {
            return SquaredRange<P>{P(Tensor(x.at(begin), x.dtype(), {count})), count};
        });
    }
    auto* const partial = reinterpret_cast<double*>(sums_.data());
    must(cudaMemsetAsync(partial, 0, static_cast<std::size_t>(sums_.size_bytes()), compute()), "zeros");
    const auto add_up = [&]<class P>(const std::vector<SquaredRange<P>>& of) {
        for_spans<P::kWidth>(of, [&](const auto& spans, std::int64_t chunks) {
            const std::int64_t blocks = std::min(chunks, kSumBlocks);
            launch(compute(), blocks, SumOfSquares<P>{spans, blocks, partial});
        });
    };
    add_up(ranges.whole);
    add_up(ranges.rest);
    launch(compute(), 1, AddPartials{partial, kSumBlocks, into.f64(), accumulate});
}

void GpuBackend::finish_step(const StepRules& rules, const Tensor& scalars) {
    launch(compute(), 1, FinishStep{rules, scalars_of(scalars)});
}

void GpuBackend::adamw(const AdamWStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) {
    for (const OptimizerRange& range : ranges)
        check(!range.first_moments.empty() && !range.second_moments.empty(), "AdamW keeps two moments");
    auto* const corrections = reinterpret_cast<float*>(corrections_.data());
    launch(compute(), 1, CorrectBias{scalars_of(scalars), step.learning_rate, step.beta1, step.beta2, corrections});
    const auto make = [&]<class P>(const Spans<Range<P>, P::kWidth>& spans) {
        return AdamW<P>{.spans = spans,
                        .step = scalars_of(scalars),
                        .decay = step.learning_rate * step.weight_decay,
                        .beta1 = step.beta1,
                        .beta2 = step.beta2,
                        .epsilon = step.epsilon,
                        .corrections = corrections};
    };
    const CutRanges<Range> all = cut(ranges);
    launch_over(compute(), all.whole, make);
    launch_over(compute(), all.rest, make);
}

void GpuBackend::sgd(const SgdStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) {
    const auto make = [&]<class P>(const Spans<Range<P>, P::kWidth>& spans) {
        return Sgd<P>{.spans = spans,
                      .step = scalars_of(scalars),
                      .decay = step.learning_rate * step.weight_decay,
                      .rate = step.learning_rate,
                      .momentum = step.momentum,
                      .uses_factor = step.uses_factor};
    };
    const CutRanges<Range> all = cut(ranges);
    launch_over(compute(), all.whole, make);
    launch_over(compute(), all.rest, make);
}

void GpuBackend::nesterov(float momentum, const Tensor& scalars, std::span<const OptimizerRange> ranges) {
    for (const OptimizerRange& range : ranges) check(!range.first_moments.empty(), "nesterov keeps a momentum");
    const auto make = [&]<class P>(const Spans<Range<P>, P::kWidth>& spans) {
        return Nesterov<P>{.spans = spans, .step = scalars_of(scalars), .momentum = momentum};
    };
    const CutRanges<Range> all = cut(ranges);
    launch_over(compute(), all.whole, make);
    launch_over(compute(), all.rest, make);
}

}  // namespace atl::kernels::gpu
