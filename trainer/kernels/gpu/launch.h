#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/kernels/gpu/runtime.h"

// How kernels are written and started. A kernel is a struct: its members are its arguments, its operator() is what a
// block of kThreads threads does. All threads go through it together; what they share out stands in each() or what is
// built on it, and ends with a barrier. So the code has no barriers of its own, and a host runs it as it stands, with
// each() as a loop. What follows from that:
//   - code outside each() is the same in all threads: it reads, but writes nothing but its own variables;
//   - a body given to each() writes what is shared or lies in memory, never a variable that it captured;
//   - two threads of one each() touch no common element, unless both only read it.
// A value that a thread keeps from one each() to the next is a PerThread. each_alone() is each() without the barrier:
// its body touches PerThreads, and memory that no other thread of the block touches before the next barrier.
namespace atl::kernels::gpu {

#if defined(ATOLL_GPU_SHIM)
#define ATOLL_UNROLL
#else
#define ATOLL_UNROLL _Pragma("unroll")
#endif
// A kernel's arguments stay where they are, also where it indexes an array of them.
#if defined(__CUDACC__)
#define ATOLL_ARGUMENT const __grid_constant__
#else
#define ATOLL_ARGUMENT const
#endif

inline constexpr int kThreads = 256;
// Threads that exchange values without a barrier. An AMD wavefront of 64 is two such groups.
inline constexpr int kLanes = 32;

// The lowest float, where a maximum begins.
inline constexpr float kLowest = -3.402823466e+38F;

// A value of each thread that outlives a barrier: a register on a GPU, an element of an array on the host.
template <class T>
class PerThread {
  public:
#if defined(ATOLL_GPU_SHIM)
    T& operator[](int thread) { return values_[thread]; }
    const T& operator[](int thread) const { return values_[thread]; }

  private:
    T values_[kThreads] = {};
#else
    __device__ T& operator[](int) { return value_; }
    __device__ const T& operator[](int) const { return value_; }

  private:
    T value_;
#endif
};

class Block {
  public:
    __device__ explicit Block(std::int64_t number) : number_(number) {}

    __device__ std::int64_t number() const { return number_; }

    // body(thread) in each thread; all are done when it returns.
    template <class Body>
    __device__ void each(const Body& body) const {
#if defined(ATOLL_GPU_SHIM)
        shim::for_threads(kThreads, body);
#else
        body(static_cast<int>(threadIdx.x));
        __syncthreads();
#endif
    }

    // The same without a barrier.
    template <class Body>
    __device__ void each_alone(const Body& body) const {
#if defined(ATOLL_GPU_SHIM)
        shim::for_threads(kThreads, body);
#else
        body(static_cast<int>(threadIdx.x));
#endif
    }

    // body(i) for each i in [0, count), shared out among the threads.
    template <class Body>
    __device__ void each_of(std::int64_t count, const Body& body) const {
        each([&](int thread) {
            for (std::int64_t i = thread; i < count; i += kThreads) body(i);
        });
    }

    // body() in one thread.
    template <class Body>
    __device__ void once(const Body& body) const {
        each([&](int thread) {
            if (thread == 0) body();
        });
    }

    // combine() over term(i) for i in [0, count), in one order whatever the device; every thread gets it.
    template <class Value, class Term, class Combine>
    __device__ Value reduce(std::int64_t count, Value identity, const Term& term, const Combine& combine) const {
        __shared__ Value parts[kThreads];
        Value* const part = parts;
        each([&](int thread) {
            Value value = identity;
            for (std::int64_t i = thread; i < count; i += kThreads) value = combine(value, term(i));
            part[thread] = value;
        });
        for (int half = kThreads / 2; half > 0; half /= 2) {
            each([&](int thread) {
                if (thread < half) part[thread] = combine(part[thread], part[thread + half]);
            });
        }
        const Value result = part[0];
        each([](int) {});  // nobody overwrites what another has yet to read
        return result;
    }

    // Each thread's values become what combine() makes of those of its team, kTeam neighbouring threads: a power of two
    // up to kLanes, or the whole block. The order is the same on every device: a butterfly over at most kLanes threads,
    // then one group of them after another.
    template <int kTeam, class T, class Combine>
    __device__ void combine(PerThread<T>& values, const Combine& combine) const {
        static_assert(kTeam <= kLanes || kTeam == kThreads);
        butterfly<(kTeam < kLanes ? kTeam : kLanes)>(values, combine);
        if constexpr (kTeam == kThreads) {
            __shared__ T parts[kThreads / kLanes];
            T* const part = parts;
            each([&](int thread) {
                if (thread % kLanes == 0) part[thread / kLanes] = values[thread];
            });
            each([&](int thread) {
                T all = part[0];
                ATOLL_UNROLL
                for (int group = 1; group < kThreads / kLanes; ++group) all = combine(all, part[group]);
                values[thread] = all;
            });
        }
    }
    template <int kTeam>
    __device__ void sum(PerThread<float>& values) const {
        combine<kTeam>(values, [](float a, float b) { return a + b; });
    }
    template <int kTeam>
    __device__ void max(PerThread<float>& values) const {
        combine<kTeam>(values, [](float a, float b) { return a > b ? a : b; });
    }

  private:
    template <int kWidth, class T, class Combine>
    __device__ static void butterfly(PerThread<T>& values, const Combine& combine) {
#if defined(ATOLL_GPU_SHIM)
        for (int distance = kWidth / 2; distance > 0; distance /= 2) {
            const PerThread<T> before = values;
            for (int thread = 0; thread < kThreads; ++thread)
                values[thread] = combine(before[thread], before[thread ^ distance]);
        }
#else
        ATOLL_UNROLL
        for (int distance = kWidth / 2; distance > 0; distance /= 2)
            values[0] = combine(values[0], exchange(values[0], distance));
#endif
    }
#if !defined(ATOLL_GPU_SHIM)
    // The value of the thread whose number differs in that bit.
    template <class T>
    __device__ static T exchange(const T& value, int distance) {
        static_assert(sizeof(T) % 4 == 0);
        struct Words {
            std::uint32_t at[sizeof(T) / 4];
        };
        Words words = __builtin_bit_cast(Words, value);
        ATOLL_UNROLL
        for (std::uint32_t& word : words.at) word = __shfl_xor_sync(0xffffffffU, word, distance);
        return __builtin_bit_cast(T, words);
    }
#endif

    std::int64_t number_;
};

// Σ term(i) for i in [0, count) by one thread, in runs so that a long sum loses few digits.
template <class Term>
__device__ float sum_in_runs(std::int64_t count, const Term& term) {
    constexpr std::int64_t kRun = 64;
    float total = 0.0F;
    for (std::int64_t begin = 0; begin < count; begin += kRun) {
        float part = 0.0F;
        for (std::int64_t i = begin; i < begin + kRun && i < count; ++i) part += term(i);
        total += part;
    }
    return total;
}

#if !defined(ATOLL_GPU_SHIM)
template <class Kernel>
__global__ void __launch_bounds__(kThreads) run_kernel(ATOLL_ARGUMENT Kernel kernel) {
    kernel(Block(blockIdx.x));
}
#endif

// kernel(block) for each of `blocks` blocks, which run in any order.
template <class Kernel>
void launch(cudaStream_t stream, std::int64_t blocks, const Kernel& kernel) {
#if defined(__HIP__)  // whose threads of a launch are numbered in 32 bits
    constexpr std::int64_t kBlocksMax = (std::int64_t{1} << 32) / kThreads;
#else
    constexpr std::int64_t kBlocksMax = std::int64_t{1} << 31;
#endif
    check(blocks < kBlocksMax, "too many blocks for one launch");
    if (blocks == 0) return;
    const char* const what = "the launch of a kernel";
#if defined(ATOLL_GPU_SHIM)
    must(shim::enqueue(
             stream,
             [blocks, kernel] { shim::for_threads(blocks, [&](std::int64_t number) { kernel(Block(number)); }); }),
         what);
#else
    Kernel copy = kernel;
    void* arguments[] = {&copy};
    must(cudaLaunchKernel(reinterpret_cast<const void*>(&run_kernel<Kernel>), dim3(static_cast<unsigned>(blocks)),
                          dim3(kThreads), arguments, 0, stream),
         what);
#endif
}

template <class Body>
struct PerElement {
    std::int64_t count;
    Body body;
    __device__ void operator()(const Block& block) const {
        block.each([&](int thread) {
            const std::int64_t i = block.number() * kThreads + thread;
            if (i < count) body(i);
        });
    }
};

// body(i) for each i in [0, count), a thread each.
template <class Body>
void launch_for_each(cudaStream_t stream, std::int64_t count, const Body& body) {
    launch(stream, (count + kThreads - 1) / kThreads, PerElement<Body>{count, body});
}

}  // namespace atl::kernels::gpu
