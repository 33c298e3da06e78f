// Memory, copies and streams of GpuBackend.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "trainer/kernels/device.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/quant/nf4.h"

namespace atl::kernels::gpu {
namespace {

// Kept at most, more than a model of a hundred layers has. The head's has a step's number of targets in its key.
constexpr std::size_t kRegionsMax = 2048;

Error no_memory(const char* kind, std::int64_t bytes, cudaError_t error) {
    return {ErrorCode::kResourceExhausted,
            "cannot allocate " + std::to_string(bytes) + " bytes of " + kind + " memory: " + cudaGetErrorString(error),
            {}};
}

std::string architecture_of(const cudaDeviceProp& properties) {
#if defined(__HIP__)
    return properties.gcnArchName;
#else
    return "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
#endif
}

std::string describe_device(const cudaDeviceProp& properties) {
#if defined(__HIP__)
    return "hip (" + std::string(properties.name) + ", " + architecture_of(properties) + ", hipBLASLt)";
#else
    return "cuda (" + std::string(properties.name) + ", " + architecture_of(properties) + ", cuBLASLt " +
           std::to_string(cublasLtGetVersion()) + ")";
#endif
}

Error does_not_start(int index, cudaError_t error) {
    return unavailable("GPU " + std::to_string(index) + " does not start: " + cudaGetErrorString(error));
}

// What to do in a container that has no GPU, to follow the reason; empty outside containers.
std::string advice_for_container() {
#if defined(__HIP__)
    constexpr std::string_view kDevice = "hip";
#else
    constexpr std::string_view kDevice = "cuda";
#endif
    const std::string advice = container_advice(
        kDevice, [](const char* name) -> const char* { return std::getenv(name); },
        [](const char* file) { return std::filesystem::exists(file); });
    return advice.empty() ? "" : "; " + advice;
}

std::array<float, kBookValues> code_books() {
    std::array<float, kBookValues> books{};
    std::ranges::copy(quant::dynamic_values(), std::ranges::copy(quant::kNf4Values, books.begin()).out);
    return books;
}

bool query(const EventHandle& event) {
    const cudaError_t status = cudaEventQuery(event.get());
    if (status == cudaErrorNotReady) {
        static_cast<void>(cudaGetLastError());  // forgotten, or a library takes it for its own
        return false;
    }
    must(status, "what an event waits for");
    return true;
}

EventHandle create_event(unsigned flags) {
    cudaEvent_t created = nullptr;
    must(cudaEventCreateWithFlags(&created, flags), "a new event");
    return EventHandle(created);
}

class GpuTimedEvent final : public TimedEvent {
  public:
    explicit GpuTimedEvent(cudaStream_t stream) : event_(create_event(cudaEventDefault)) {
        must(cudaEventRecord(event_.get(), stream), "the recording of an event");
    }
    bool has_happened() const override { return query(event_); }
    double seconds_since(const TimedEvent& other) const override {
        float milliseconds = 0;
        must(cudaEventElapsedTime(&milliseconds, static_cast<const GpuTimedEvent&>(other).event_.get(), event_.get()),
             "the time between two events");
        return static_cast<double>(milliseconds) / 1e3;
    }

  private:
    EventHandle event_;
};

}  // namespace

Result<int> count_devices() {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    static_cast<void>(cudaGetLastError());  // forgotten, or a library takes it for its own
    if (error == cudaSuccess && count > 0) return count;
    // Without a driver the runtime says that the driver is too old.
    int driver = 0;
    const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    static_cast<void>(cudaGetLastError());
    const std::string why = has_driver ? "there is no GPU that this process can use; the runtime says: " +
                                             std::string(cudaGetErrorString(error))
                                       : "no driver of a GPU is found here";
    return invalid_argument("device", why + advice_for_container());
}

std::string describe_card(int index) {
    cudaDeviceProp properties{};
    std::array<char, 32> place{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess ||
        cudaDeviceGetPCIBusId(place.data(), static_cast<int>(place.size()), index) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return "";
    }
    return std::string(properties.name) + ", " + architecture_of(properties) + ", " + place.data();
}

Result<std::unique_ptr<Backend>> GpuBackend::open(int index, const GpuOptions& options) {
    ATOLL_TRY(const int count, count_devices());
    if (index < 0 || index >= count)
        return invalid_argument(
            "device", "GPU " + std::to_string(index) + " was asked for, and there are " + std::to_string(count));
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) return does_not_start(index, error);
    must(cudaGetDeviceProperties(&properties, index), "the properties of the device");
    std::array<char, 32> card{};
    must(cudaDeviceGetPCIBusId(card.data(), static_cast<int>(card.size()), index), "the place of the device");
    std::vector<StreamHandle> streams(3);
    for (StreamHandle& stream : streams) {
        cudaStream_t created = nullptr;
        const cudaError_t error = cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking);
        if (error != cudaSuccess) return does_not_start(index, error);
        stream.reset(created);
    }
    std::unique_ptr<GpuBackend> backend(
        new GpuBackend(describe_device(properties), card.data(), std::move(streams), options));
    ATOLL_RETURN_IF_ERROR(backend->prepare());
    return std::unique_ptr<Backend>(std::move(backend));
}

GpuBackend::GpuBackend(std::string name, std::string card, std::vector<StreamHandle> streams, const GpuOptions& options)
    : name_(std::move(name)), card_(std::move(card)), streams_(std::move(streams)), options_(options) {}

Status GpuBackend::prepare() {
    ATOLL_TRY(scratch_, allocate(kScratchBytes));
    ATOLL_TRY(sums_, allocate(kSumsBytes));
    ATOLL_TRY(corrections_, allocate(kCorrectionsBytes));
    const auto books = code_books();
    ATOLL_TRY(books_, allocate(kBooksBytes));
    copy_from_host(books.data(), Tensor(books_.data(), tensor::DType::kF32, {std::ssize(books)}));
    ATOLL_TRY(tensor::Memory workspace, allocate(kProductWorkspaceBytes));
    ATOLL_TRY(Products products, Products::open(std::move(workspace)));
    products_ = std::make_unique<Products>(std::move(products));
    open_sdpa();
    return {};
}

std::int64_t GpuBackend::own_bytes() const {
    return kProductWorkspaceBytes + scratch_.size_bytes() + sums_.size_bytes() + corrections_.size_bytes() +
           books_.size_bytes();
}

std::optional<Backend::DeviceMemory> GpuBackend::device_memory() const {
    std::size_t free = 0, total = 0;
    must(cudaMemGetInfo(&free, &total), "the device's memory");
    return DeviceMemory{static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

GpuBackend::~GpuBackend() {
    synchronize();
}

Result<tensor::Memory> GpuBackend::allocate(Space space, std::int64_t bytes) {
    check_outside_region("memory");
    const std::int64_t size = std::max<std::int64_t>(bytes, 1);
    const bool is_pinned = space == Space::kPinned;
    void* data = nullptr;
    const cudaError_t error = is_pinned ? cudaHostAlloc(&data, static_cast<std::size_t>(size), cudaHostAllocDefault)
                                        : cudaMalloc(&data, static_cast<std::size_t>(size));
    if (error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return no_memory(is_pinned ? "pinned" : "the GPU's", bytes, error);
    }
    return tensor::Memory(static_cast<std::byte*>(data), size, [this, is_pinned](std::byte* memory, std::int64_t) {
        synchronize();
        must(is_pinned ? cudaFreeHost(memory) : cudaFree(memory), "the freeing of memory");
    });
}

void GpuBackend::copy(const Tensor& from, const Tensor& to) {
    check_count(to, from.element_count());
    check(from.contiguous() && from.dtype() == to.dtype(), "copy neither converts nor gathers");
    must(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(from.byte_count()), cudaMemcpyDefault,
                         compute()),
         "a copy");
}

void GpuBackend::copy_from_host(const void* from, const Tensor& to) {
    check(to.contiguous(), "copies are of contiguous tensors");
    wait_on_host(record(Stream::kCompute));  // the copy itself blocks
    must(cudaMemcpyAsync(to.data(), from, static_cast<std::size_t>(to.byte_count()), cudaMemcpyDefault, compute()),
         "a copy from the host");
    must(cudaStreamSynchronize(compute()), "a copy from the host");
}

void GpuBackend::copy_to_host(const Tensor& from, void* to) {
    check(from.contiguous(), "copies are of contiguous tensors");
    wait_on_host(record(Stream::kCompute));
    must(cudaMemcpyAsync(to, from.data(), static_cast<std::size_t>(from.byte_count()), cudaMemcpyDefault, compute()),
         "a copy to the host");
    must(cudaStreamSynchronize(compute()), "a copy to the host");
}

void GpuBackend::zero(const Tensor& x) {
    check(x.contiguous(), "zero takes contiguous tensors");
    must(cudaMemsetAsync(x.data(), 0, static_cast<std::size_t>(x.byte_count()), compute()), "zeros");
}

void GpuBackend::synchronize() {
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) wait_on_host(record(static_cast<Stream>(stream)));
    must(cudaDeviceSynchronize(), "what was computed");
}

void GpuBackend::transfer(Stream stream, const Tensor& from, const Tensor& to) {
    check_outside_region("a transfer");
    check(stream != Stream::kCompute, "transfers have streams of their own");
    check(from.contiguous() && to.contiguous() && from.byte_count() == to.byte_count(), "a transfer of unequal sizes");
    must(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(from.byte_count()), cudaMemcpyDefault,
                         on(stream)),
         "a transfer");
}

Event GpuBackend::record(Stream stream) {
    check_outside_region("an event");
    while (!recorded_.empty() && query(recorded_.front().event)) {
        idle_.push_back(std::move(recorded_.front().event));
        recorded_.pop_front();
    }
    if (idle_.empty()) idle_.push_back(create_event(cudaEventDisableTiming));
    recorded_.push_back({++last_event_, std::move(idle_.front())});
    idle_.pop_front();
    must(cudaEventRecord(recorded_.back().event.get(), on(stream)), "the recording of an event");
    return {last_event_};
}

// Null: it has happened.
const EventHandle* GpuBackend::find(Event event) const {
    if (recorded_.empty() || event.number < recorded_.front().number) return nullptr;
    check(event.number <= last_event_, "an event of another device");
    return &recorded_[event.number - recorded_.front().number].event;
}

void GpuBackend::wait(Stream stream, Event event) {
    check_outside_region("a wait");
    const EventHandle* const found = find(event);
    if (found != nullptr) must(cudaStreamWaitEvent(on(stream), found->get(), 0), "a stream's wait");
}

void GpuBackend::wait_without_limit(Event event) {
    const EventHandle* const found = find(event);
    if (found != nullptr) must(cudaEventSynchronize(found->get()), "what an event waits for");
}

bool GpuBackend::has_happened(Event event) {
    const EventHandle* const found = find(event);
    return found == nullptr || query(*found);
}

LibraryStream GpuBackend::open_stream() {
    check_outside_region("a stream");
    cudaStream_t created = nullptr;
    must(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "a new stream");
    streams_.emplace_back(created);
    return {static_cast<Stream>(streams_.size() - 1), created};
}

std::shared_ptr<const TimedEvent> GpuBackend::record_timed(Stream stream) {
    check_outside_region("an event");
    return std::make_shared<GpuTimedEvent>(on(stream));
}

void GpuBackend::check_outside_region(const char* what) const {
    check(!is_in_region_, std::string("a region asks for ") + what);
}

void GpuBackend::region(const std::vector<std::uint64_t>& key, const std::function<void()>& body) {
    check_outside_region("a region");
    if (!options_.graphs) return body();
    const auto known = regions_.find(key);
    if (known == regions_.end()) {
        if (regions_.size() == kRegionsMax) std::erase_if(regions_, [](const auto& one) { return one.second == 0; });
        if (regions_.size() < kRegionsMax) regions_.emplace(key, 0);
        is_in_region_ = true;
        body();
        is_in_region_ = false;
        return;
    }
    if (known->second == 0) {
        graphs_.push_back(record_graph(body));
        known->second = graphs_.size();
    }
    must(cudaGraphLaunch(graphs_[known->second - 1].get(), compute()), "a graph");
}

GraphHandle GpuBackend::record_graph(const std::function<void()>& body) {
    constexpr const char* kWhat = "the recording of a graph, without which ATOLL_GPU_GRAPHS=off computes";
    is_in_region_ = true;
    must(cudaStreamBeginCapture(compute(), cudaStreamCaptureModeThreadLocal), kWhat);
    body();
    cudaGraph_t recorded = nullptr;
    must(cudaStreamEndCapture(compute(), &recorded), kWhat);
    is_in_region_ = false;
    const Handle<cudaGraph_t, cudaGraphDestroy> graph(recorded);
    cudaGraphExec_t made = nullptr;
    must(cudaGraphInstantiateWithFlags(&made, graph.get(), 0), kWhat);
    return GraphHandle(made);
}

}  // namespace atl::kernels::gpu
