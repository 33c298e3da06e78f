#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "trainer/model/batch.h"
#include "trainer/parallel/control_variate.h"
#include "trainer/parallel/device_scalars.h"
#include "trainer/parallel/engine.h"
#include "trainer/parallel/proximal_term.h"
#include "trainer/plan/memory.h"

namespace atl::parallel {

// What decides how a run's memory is laid out.
struct RunMemoryOptions {
    EngineOptions engine;
    ParallelLayout layout;
    const ExchangeLibrary* library = nullptr;     // that makes the run's groups, and outlives the memory; null: MPI
    const optim::Optimizer* optimizer = nullptr;  // null: evaluation
    // Where weights, and where masters and moments lie: with kCpu in pinned memory of the host, which where the host
    // reaches the device's is the same as kNone. kNvme is for the optimizer's alone: in a file in offload_dir.
    run_settings::Offload offload_params = run_settings::Offload::kNone;
    run_settings::Offload offload_optimizer = run_settings::Offload::kNone;
    std::filesystem::path offload_dir = {};
    bool has_proximal_term = false;
    bool has_control_variate = false;
    bool copies_state = false;  // whoever saves states takes memory for a copy of what this rank saves: counted only
};

// All of a run's memory: a block of the device's and one of pinned memory, cut before the first step. Not movable: its
// parts point to each other.
//
//   const RunMemoryOptions options{.engine = {.largest = {.batch = 8, .length = 512}}, .layout = layout, …};
//   const plan::MemoryPlan plan = RunMemory::measure(backend, model, options);   // `atoll-trainer plan` stops here
//   ATOLL_TRY(auto memory, RunMemory::allocate(backend, model, options));
//   ATOLL_RETURN_IF_ERROR(load(memory->store()));
//   memory->engine().train(…);
class RunMemory {
  public:
    // Weights are zeros, the rest is uninitialised. kResourceExhausted: there is not that much memory; of the device's
    // with what can be offloaded. Other errors are those of the file of an offloaded optimizer.
    static Result<std::unique_ptr<RunMemory>> allocate(kernels::Backend& backend, const model::Model& model,
                                                       const RunMemoryOptions& options);
    // What allocate() would take, exactly.
    static plan::MemoryPlan measure(kernels::Backend& backend, const model::Model& model,
                                    const RunMemoryOptions& options);

    ParameterStore& store() { return store_; }
    Engine& engine() { return engine_; }
    ProximalTerm& proximal_term() { return proximal_term_; }        // lays out nothing where the options ask for none
    ControlVariate& control_variate() { return control_variate_; }  // likewise
    model::BatchBuffers& batch() { return batch_; }
    DeviceScalars& scalars() { return scalars_; }

  private:
    RunMemory(Arena device, Arena pinned) : device_(std::move(device)), pinned_(std::move(pinned)) {}
    void lay_out(kernels::Backend& backend, const model::Model& model, const RunMemoryOptions& options);

    Arena device_, pinned_;
    ParameterStore store_;
    Engine engine_;
    ProximalTerm proximal_term_;
    ControlVariate control_variate_;
    model::BatchBuffers batch_;
    DeviceScalars scalars_;
};

}  // namespace atl::parallel
