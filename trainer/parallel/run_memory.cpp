#include "trainer/parallel/run_memory.h"

#include <utility>

#include "shared/host/node.h"
#include "trainer/parallel/gather_to_rank0.h"

namespace atl::parallel {

void RunMemory::lay_out(kernels::Backend& backend, const model::Model& model, const RunMemoryOptions& options) {
    store_ = ParameterStore::lay_out(device_, model, options.layout, options.optimizer,
                                     options.offload_optimizer ? &pinned_ : nullptr);
    engine_ = Engine::lay_out(device_, backend, store_, options.engine);
    if (options.has_proximal_term) proximal_term_ = ProximalTerm::lay_out(device_, store_);
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
    plan.offloaded_bytes = memory.store_.offloaded_bytes();
    if (options.copies_state) plan.staging_bytes = memory.store_.own_state_bytes();
    return plan;
}

Result<std::unique_ptr<RunMemory>> RunMemory::allocate(kernels::Backend& backend, const model::Model& model,
                                                       const RunMemoryOptions& options) {
    const plan::MemoryPlan plan = measure(backend, model, options);
    ATOLL_TRY(tensor::Memory device, backend.allocate(kernels::Space::kDevice, plan.device_bytes));
    ATOLL_TRY(tensor::Memory pinned, backend.allocate(kernels::Space::kPinned, plan.pinned_bytes));
    std::unique_ptr<RunMemory> memory(new RunMemory(Arena(std::move(device)), Arena(std::move(pinned))));
    memory->lay_out(backend, model, options);
    if (options.offload_optimizer) {
        const Status opened = write_outcome(memory->store_.open_offload(options.offload_dir));
        if (!opened.ok()) return Error{opened.error().code, opened.error().message, "--offload-dir"};
    }
    memory->store_.clear_weights(backend);
    return memory;
}

}  // namespace atl::parallel
