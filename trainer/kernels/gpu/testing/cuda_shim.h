#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

// The calls of CUDA's runtime that gpu/ makes, on the host, with the meaning that NVIDIA documents: for tests without a
// GPU, and cublas_lt_shim.h those of cuBLASLt. Types and functions have CUDA's names, so that the backend's sources
// compile as they stand.
//
// What a stream is asked for waits until the host waits for something, or asks a second time whether an event has
// happened and for nothing else in between; then streams run in any order that their events allow, by a seed
// (shim::set_order). Device memory faults when the host touches it. Each thread has a device of its own.

#define __device__  // NOLINT(bugprone-reserved-identifier)
#define __shared__  // NOLINT(bugprone-reserved-identifier)

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorStreamCaptureUnsupported = 900
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
using cudaStream_t = struct ShimStream*;
using cudaEvent_t = struct ShimEvent*;
using cudaGraph_t = struct ShimGraph*;
using cudaGraphExec_t = struct ShimGraph*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
struct cudaDeviceProp {
    char name[256];
    int major, minor;
};
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0;
inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
// While a stream records, whatever asks for memory, events or waits fails.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);

enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };

namespace atl::kernels::gpu::shim {

// The order of what is free to run: of streams, and of the threads and blocks of a kernel, which run from the first to
// the last or back, as is drawn whenever some are to run.
void set_order(std::uint64_t seed);
void set_device_count(int count);
// 0, as the runtime says it: there is no driver.
void set_driver_version(int version);
// Of cudaMalloc: how many there were, and the bytes that were not freed.
std::int64_t device_allocations();
std::int64_t device_bytes();
// Graphs that were made, and how often one was launched, ever.
std::int64_t graphs_made();
std::int64_t graph_launches();
// How much the device has, 80 GB at first: cudaMalloc fails beyond it.
void set_device_memory(std::int64_t bytes);
// The next call of that name fails ("cudaMalloc").
void fail_next(const std::string& call, cudaError_t error);

// As the launch of a kernel that does this.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
// The same of one that begins when is_ready() says so, asked again and again: it waits for other devices.
void enqueue_after_others(cudaStream_t stream, const std::function<bool()>& is_ready,
                          const std::function<void()>& work);
// Runs a piece of work that is free to run, if there is one: a device goes on while its host waits for another rank.
void progress();
// Where this thread's device says that it is: two at one place are one card. At first each has its own.
void set_card(const std::string& card);
bool draw_backwards();

// body(number) for each number in [0, count).
template <class Number, class Body>
void for_threads(Number count, const Body& body) {
    if (draw_backwards()) {
        for (Number number = count; number-- > 0;) body(number);
    } else {
        for (Number number = 0; number < count; ++number) body(number);
    }
}

}  // namespace atl::kernels::gpu::shim
