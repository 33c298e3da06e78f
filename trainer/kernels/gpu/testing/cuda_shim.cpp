#include "trainer/kernels/gpu/testing/cuda_shim.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "shared/base/check.h"

namespace {

// How often an event was recorded, and how many of these have happened, the last one when.
struct EventState {
    std::uint64_t recorded = 0, happened = 0;
    std::chrono::steady_clock::time_point at;
    bool is_done() const { return happened == recorded; }
};

struct Work {
    std::function<void()> run;
    std::function<bool()> is_ready;  // empty: at once
    bool waits_for_others = false;   // for other devices, not for an event of this one
    bool ready() const { return !is_ready || is_ready(); }
};

}  // namespace

struct ShimGraph {
    std::vector<std::function<void()>> calls;
};
struct ShimStream {
    std::deque<Work> work;
    std::unique_ptr<ShimGraph> recorded = nullptr;  // null: it does not record
};
struct ShimEvent {
    bool is_timed = false;
    std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace {

std::string own_card() {
    static std::atomic<int> cards = 0;
    return "0000:" + std::to_string(10 + cards++) + ":00.0";
}

constexpr std::chrono::microseconds kPause(20);  // of a device that waits for others

struct Device {
    std::mt19937_64 random{1};
    int count = 1;
    int driver_version = 13000;
    std::vector<ShimStream*> streams;
    std::map<void*, std::size_t> memory;  // of the device
    std::int64_t allocations = 0;         // of that, ever
    std::int64_t total = 80'000'000'000;  // bytes of memory
    std::int64_t graphs = 0, launches = 0;
    std::map<std::string, cudaError_t> failing;
    std::string card = own_card();
    bool is_asked = false;  // whether an event has happened that has not, since the host last asked for work

    void protect(int rights) const {
        for (const auto& [data, bytes] : memory) atl::check(::mprotect(data, bytes, rights) == 0, "mprotect failed");
    }
    void run(const Work& work) const {
        protect(PROT_READ | PROT_WRITE);
        work.run();
        protect(PROT_NONE);
    }
    // One piece of work of any stream that may go on; false: there is none.
    bool run_one() {
        std::vector<ShimStream*> ready;
        for (ShimStream* stream : streams) {
            if (!stream->work.empty() && stream->work.front().ready()) ready.push_back(stream);
        }
        if (ready.empty()) return false;
        ShimStream& chosen = *ready[random() % ready.size()];
        const Work work = std::move(chosen.work.front());
        chosen.work.pop_front();
        run(work);
        return true;
    }
    template <class Condition>
    void run_until(const Condition& condition) {
        while (!condition()) {
            if (!run_one()) wait_for_others();
        }
    }
    // Of a device that has nothing to do.
    void wait_for_others() const {
        atl::check(std::ranges::any_of(streams,
                                       [](const auto* stream) {
                                           return !stream->work.empty() && stream->work.front().waits_for_others;
                                       }),
                   "every stream waits for an event that nothing will record");
        std::this_thread::sleep_for(kPause);
    }
    void run_all() {
        run_until(
            [&] { return std::ranges::all_of(streams, [](const auto* stream) { return stream->work.empty(); }); });
    }
    bool is_recording() const {
        return std::ranges::any_of(streams, [](const auto* stream) { return stream->recorded != nullptr; });
    }
    void put(cudaStream_t stream, Work work) {
        if (stream->recorded != nullptr) return stream->recorded->calls.push_back(std::move(work.run));
        stream->work.push_back(std::move(work));
        is_asked = false;
    }
    // Of a call that a stream that records does not take.
    cudaError_t result_outside_graph(const char* call) {
        return is_recording() ? cudaErrorStreamCaptureUnsupported : result(call);
    }
    cudaError_t result(const char* call) {
        const auto found = failing.extract(call);
        return found ? found.mapped() : cudaSuccess;
    }
};

Device& device() {
    thread_local Device of_thread;
    return of_thread;
}

}  // namespace

namespace atl::kernels::gpu::shim {

void set_order(std::uint64_t seed) {
    device().run_all();
    device().random.seed(seed);
}

void set_device_count(int count) {
    device().count = count;
}

void set_driver_version(int version) {
    device().driver_version = version;
}

std::int64_t device_allocations() {
    return device().allocations;
}

std::int64_t device_bytes() {
    std::int64_t all = 0;
    for (const auto& [data, bytes] : device().memory) all += static_cast<std::int64_t>(bytes);
    return all;
}

std::int64_t graphs_made() {
    return device().graphs;
}

std::int64_t graph_launches() {
    return device().launches;
}

void set_device_memory(std::int64_t bytes) {
    device().total = bytes;
}

void fail_next(const std::string& call, cudaError_t error) {
    device().failing[call] = error;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    const cudaError_t error = device().result("launch");
    if (error == cudaSuccess) device().put(stream, {std::move(work), {}});
    return error;
}

void enqueue_after_others(cudaStream_t stream, const std::function<bool()>& is_ready,
                          const std::function<void()>& work) {
    device().put(stream, {work, is_ready, true});
}

void progress() {
    if (!device().run_one()) std::this_thread::sleep_for(kPause);
}

void set_card(const std::string& card) {
    device().card = card;
}

bool draw_backwards() {
    return device().random() % 2 == 1;
}

}  // namespace atl::kernels::gpu::shim

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorInvalidResourceHandle:
            return "invalid resource handle";
        case cudaErrorNotReady:
            return "device not ready";
        case cudaErrorStreamCaptureUnsupported:
            return "operation not permitted when stream is capturing";
    }
    return "unknown error";
}

cudaError_t cudaGetLastError() {
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = device().driver_version;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = device().count;
    return device().count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaSetDevice(int number) {
    return number < device().count ? device().result("cudaSetDevice") : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
    if (number >= device().count) return cudaErrorInvalidDevice;
    *properties = {"shim", 0, 1};
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
    const std::string& card = device().card;
    id[card.copy(id, static_cast<std::size_t>(length) - 1)] = '\0';
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    if (device().is_recording()) return cudaErrorStreamCaptureUnsupported;
    device().run_all();
    return device().result("cudaDeviceSynchronize");
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
    if (const cudaError_t error = device().result_outside_graph("cudaMalloc"); error != cudaSuccess) return error;
    if (static_cast<std::int64_t>(bytes) > device().total - atl::kernels::gpu::shim::device_bytes())
        return cudaErrorMemoryAllocation;
    *data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*data == MAP_FAILED) return cudaErrorMemoryAllocation;
    device().memory.emplace(*data, bytes);
    ++device().allocations;
    return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
    device().run_all();
    const auto found = device().memory.extract(data);
    atl::check(static_cast<bool>(found), "cudaFree of what cudaMalloc did not give");
    ::munmap(data, found.mapped());
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *total = static_cast<std::size_t>(device().total);
    *free =
        static_cast<std::size_t>(std::max<std::int64_t>(0, device().total - atl::kernels::gpu::shim::device_bytes()));
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
    if (const cudaError_t error = device().result_outside_graph("cudaHostAlloc"); error != cudaSuccess) return error;
    *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
    device().run_all();
    std::free(data);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    device().put(stream, {[=] { std::memcpy(to, from, bytes); }, {}});
    return device().result("cudaMemcpyAsync");
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    device().put(stream, {[=] { std::memset(to, value, bytes); }, {}});
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    if (const cudaError_t error = device().result("cudaStreamCreateWithFlags"); error != cudaSuccess) return error;
    *stream = new ShimStream;
    device().streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    device().run_until([&] { return stream->work.empty(); });
    std::erase(device().streams, stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (device().is_recording()) return cudaErrorStreamCaptureUnsupported;
    device().run_until([&] { return stream->work.empty(); });
    return device().result("cudaStreamSynchronize");
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (device().is_recording()) return cudaErrorStreamCaptureUnsupported;
    const auto has_happened = [state = event->state, times = event->state->recorded] {
        return state->happened >= times;
    };
    device().put(stream, {[] {}, has_happened});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new ShimEvent{.is_timed = flags != cudaEventDisableTiming};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (device().is_recording()) return cudaErrorStreamCaptureUnsupported;
    const std::uint64_t number = ++event->state->recorded;
    const auto happen = [state = event->state, number] {
        state->happened = number;
        state->at = std::chrono::steady_clock::now();
    };
    device().put(stream, {happen, {}});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (device().is_recording()) return cudaErrorStreamCaptureUnsupported;
    if (event->state->is_done()) return cudaSuccess;
    if (!std::exchange(device().is_asked, true)) return cudaErrorNotReady;
    while (!event->state->is_done()) {
        if (device().run_one()) continue;
        device().wait_for_others();
        return cudaErrorNotReady;
    }
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (device().is_recording()) return cudaErrorStreamCaptureUnsupported;
    device().run_until([&] { return event->state->is_done(); });
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    if (!from->is_timed || !to->is_timed) return cudaErrorInvalidResourceHandle;
    if (!from->state->is_done() || !to->state->is_done()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->state->at - from->state->at).count();
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (device().is_recording()) return cudaErrorStreamCaptureUnsupported;
    stream->recorded = std::make_unique<ShimGraph>();
    return device().result("cudaStreamBeginCapture");
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = stream->recorded.release();
    return device().result("cudaStreamEndCapture");
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
    *made = new ShimGraph(*graph);
    ++device().graphs;
    return device().result("cudaGraphInstantiateWithFlags");
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    for (const auto& call : graph->calls) device().put(stream, {call, {}});
    ++device().launches;
    return device().result("cudaGraphLaunch");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete graph;
    return cudaSuccess;
}
