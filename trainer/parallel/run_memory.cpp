#include "trainer/parallel/run_memory.h"

#include <utility>

#include "shared/base/text.h"
#include "shared/host/node.h"
#include "trainer/parallel/gather_to_rank0.h"

namespace atl::parallel {
namespace {

using run_settings::Offload;

// Memory of the host is offloaded to where it is another than the device's.
bool is_offloaded(const kernels::Backend& backend, Offload asked) {
    return asked == Offload::kNvme || (asked == Offload::kCpu && !backend.host_reaches_device());
}

// The device has no room for it: with what the host's memory could take of it.
Error no_room(kernels::Backend& backend, const model::Model& model, RunMemoryOptions options, std::int64_t bytes,
              Error error) {
    std::string flags;
    const auto offload = [&](Offload& setting, const char* flag) {
        if (setting != Offload::kNone) return;
        setting = Offload::kCpu;
        flags += std::string(flags.empty() ? "" : " ") + flag + " cpu";
    };
    offload(options.offload_params, "--offload-params");
    if (options.optimizer != nullptr) offload(options.offload_optimizer, "--offload-optimizer");
    const std::int64_t less = RunMemory::measure(backend, model, options).device_bytes;
    if (less < bytes) error.message += "; with " + flags + " it is " + human_bytes(static_cast<std::uint64_t>(less));
    return error;
}

}  // namespace

void RunMemory::lay_out(kernels::Backend& backend, const model::Model& model, const RunMemoryOptions& options) {
    check(options.offload_params != Offload::kNvme, "weights are not offloaded to a file");
    const auto mpi = open_exchange_library(backend);
    const ExchangeLibrary* const library = options.library != nullptr ? options.library : mpi.get();
    const ParameterStore::Offload offload = {
        .pinned = &pinned_,
        .library = library,
        .weights = is_offloaded(backend, options.offload_params),
        .optimizer = is_offloaded(backend, options.offload_optimizer) ? options.offload_optimizer : Offload::kNone};
    store_ = ParameterStore::lay_out(device_, model, options.layout, options.optimizer, offload);
    engine_ = Engine::lay_out({device_, pinned_, *library}, backend, store_, options.engine);
    if (options.has_proximal_term) proximal_term_ = ProximalTerm::lay_out(device_, store_);
    if (options.has_control_variate) control_variate_ = ControlVariate::lay_out(device_, store_);
    // The host is one step ahead of the scalars that it knows.
    const std::int64_t ahead = DeviceScalars::kUnread * options.engine.reduce.accumulation;
    batch_ = model::BatchBuffers::allocate(device_, pinned_, backend, model.config, options.engine.largest, ahead);
    scalars_ = DeviceScalars::lay_out(device_, pinned_);
}

plan::MemoryPlan RunMemory::measure(kernels::Backend& backend, const model::Model& model,
                                    const RunMemoryOptions& options) {
    RunMemory memory(Arena::measuring(), Arena::measuring());
    memory.lay_out(backend, model, options);
    plan::MemoryPlan plan = plan::read_plan(memory.device_, memory.pinned_, host::resident_bytes());
    plan.backend_bytes = backend.own_bytes();
    plan.offloaded_bytes = memory.store_.offloaded_bytes();
    if (options.copies_state) plan.staging_bytes = memory.store_.own_state_bytes();
    return plan;
}

Result<std::unique_ptr<RunMemory>> RunMemory::allocate(kernels::Backend& backend, const model::Model& model,
                                                       const RunMemoryOptions& options) {
    const plan::MemoryPlan plan = measure(backend, model, options);
    auto device = backend.allocate(kernels::Space::kDevice, plan.device_bytes);
    if (!device.ok()) return no_room(backend, model, options, plan.device_bytes, device.error());
    ATOLL_TRY(tensor::Memory pinned, backend.allocate(kernels::Space::kPinned, plan.pinned_bytes));
    std::unique_ptr<RunMemory> memory(new RunMemory(Arena(std::move(device).value()), Arena(std::move(pinned))));
    memory->lay_out(backend, model, options);
    if (options.offload_optimizer == Offload::kNvme) {
        const Status opened = write_outcome(memory->store_.open_offload(options.offload_dir));
        if (!opened.ok()) return Error{opened.error().code, opened.error().message, "--offload-dir"};
    }
    memory->store_.clear_weights(backend);
    return memory;
}

}  // namespace atl::parallel
