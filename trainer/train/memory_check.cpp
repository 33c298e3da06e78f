#include "trainer/train/memory_check.h"

#include "shared/base/text.h"
#include "shared/host/node.h"
#include "trainer/model_io/weights_io.h"

namespace atl::train {
namespace {

// What the resident size of the program may differ by from one process to the next: settings that are advised fit into
// so much less, so that they fit the process that takes the advice.
constexpr std::int64_t kProgramSpreadBytes = 2'000'000;

// Of the host. What does not fit into a device's own memory is told when it is allocated.
std::int64_t host_bytes(const plan::MemoryPlan& plan, const kernels::Backend& backend) {
    return plan.host_bytes(backend.host_reaches_device());
}

// What helps a rank that needs more than its share.
std::string way_out(const PreparedRun& prepared, const plan::MemoryPlan& plan, kernels::Backend& backend, int ranks,
                    std::int64_t limit_bytes) {
    const std::string program = human_bytes(plan.program_bytes);
    const bool program_is_too_large = plan.program_bytes > limit_bytes;
    if (prepared.unseen_bytes > plan.total_bytes() / 2 || (prepared.unseen_bytes > 0 && program_is_too_large)) {
        return "the program and MPI take " + program +
               " of it with so many ranks on one machine; --ranks-per-node says how many it has";
    }
    if (program_is_too_large) return "the program alone takes " + program;
    const plan::Settings settings = memory_settings(prepared);
    const auto need = [&](const plan::Settings& candidate) {
        return host_bytes(measure_with(prepared, candidate, backend, 0, ranks), backend);
    };
    const auto nearest = plan::nearest_that_fits(settings, ranks, limit_bytes - kProgramSpreadBytes, need);
    if (!nearest) return "no other settings fit on so few ranks";
    const std::string at_once = nearest->save_async == settings.save_async ? "" : " --save-async off";
    const bool same_layers = nearest->checkpoint_layers == settings.checkpoint_layers;
    return "the nearest that fits: " + plan::to_flags(*nearest) + (same_layers ? "" : " --checkpoint-layers 0") +
           at_once + " (" + human_bytes(need(*nearest)) + ")";
}

// The same for a command that only reads the model.
std::string smaller_batch(std::int64_t rows, const std::function<std::int64_t(std::int64_t rows)>& need_bytes,
                          std::int64_t limit_bytes) {
    while ((rows /= 2) > 0) {
        const std::int64_t need = need_bytes(rows);
        if (need <= limit_bytes - kProgramSpreadBytes)
            return "the nearest that fits: --batch-size " + std::to_string(rows) + " (" + human_bytes(need) + ")";
    }
    return "--precision bf16 and --quantize keep the weights in less, --sharding full_shard divides them among ranks";
}

Error too_much(const char* what, std::int64_t need_bytes, std::int64_t limit_bytes, const std::string& way_out) {
    return {ErrorCode::kResourceExhausted,
            std::string(what) + " needs " + human_bytes(need_bytes) + " a rank and there are " +
                human_bytes(limit_bytes) + "; " + way_out,
            "memory"};
}

// What each rank of this machine may take. What the program has is counted in the need and no longer available.
std::int64_t share_bytes(comm::Comm& comm) {
    return host::available_bytes() / comm.ranks_on_node() + host::resident_bytes();
}

}  // namespace

plan::Settings memory_settings(const PreparedRun& prepared) {
    return {.sharding = prepared.config.sharding,
            .batch_size = prepared.batch.micro,
            .grad_accum = prepared.batch.accumulation,
            .activation_checkpointing = prepared.config.activation_checkpointing,
            .checkpoint_layers = prepared.config.checkpoint_layers,
            .offload_optimizer = prepared.config.offload_optimizer,
            .save_async = prepared.config.save_async};
}

plan::MemoryPlan measure_with(const PreparedRun& prepared, const plan::Settings& settings, kernels::Backend& backend,
                              int rank, int ranks) {
    parallel::RunMemoryOptions options = run_memory_options(prepared, rank, ranks);
    options.layout = parallel::parallel_layout(settings.sharding, rank, ranks, prepared.shard_group);
    options.engine.largest.batch = settings.batch_size;
    options.engine.reduce.accumulation = settings.grad_accum;
    options.engine.checkpointing = {settings.activation_checkpointing, settings.checkpoint_layers};
    options.copies_state = settings.save_async == run_settings::OnOff::kOn;
    options.offload_optimizer = settings.offload_optimizer;
    plan::MemoryPlan plan = parallel::RunMemory::measure(backend, prepared.directory.model, options);
    plan.program_bytes += prepared.unseen_bytes + model_io::save_buffer_bytes(prepared.directory.model,
                                                                              prepared.directory.adapters.has_value());
    return plan;
}

Status check_memory(const PreparedRun& prepared, kernels::Backend& backend, int ranks, std::int64_t limit_bytes) {
    const plan::MemoryPlan plan = measure_with(prepared, memory_settings(prepared), backend, 0, ranks);
    const std::int64_t need_bytes = host_bytes(plan, backend);
    if (need_bytes <= limit_bytes) return {};
    return too_much("this run", need_bytes, limit_bytes, way_out(prepared, plan, backend, ranks, limit_bytes));
}

Status check_fits(const PreparedRun& prepared, kernels::Backend& backend, comm::Comm& comm) {
    return comm.agree(check_memory(prepared, backend, comm.size(), share_bytes(comm)));
}

Status check_fits(std::int64_t rows, const std::function<std::int64_t(std::int64_t rows)>& need_bytes,
                  comm::Comm& comm) {
    const std::int64_t limit = share_bytes(comm), need = need_bytes(rows);
    if (need <= limit) return comm.agree({});
    return comm.agree(too_much("this", need, limit, smaller_batch(rows, need_bytes, limit)));
}

}  // namespace atl::train
