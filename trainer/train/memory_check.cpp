#include "trainer/train/memory_check.h"

#include <limits>

#include "shared/base/text.h"
#include "shared/host/node.h"
#include "trainer/model_io/weights_io.h"
#include "trainer/train/backend.h"

namespace atl::train {
namespace {

// What the resident size of the program may differ by from one process to the next: settings that are advised fit into
// so much less, so that they fit the process that takes the advice.
constexpr std::int64_t kProgramSpreadBytes = 2'000'000;

// What a driver takes of a GPU's memory later: for the code of kernels that are used the first time, for graphs, and
// for its own pages. An estimate, which no GPU has confirmed.
constexpr std::int64_t kDriverSpareBytes = 64'000'000;

// What each rank of this machine may take. What the program has is counted in the need and no longer available.
plan::Bytes share_bytes(const kernels::Backend& backend, comm::Comm& comm) {
    int ranks_on_gpu = 1;
    if (backend.device_memory()) {
        ranks_on_gpu = ranks_on_gpu_of(comm);
        static_cast<void>(comm.agree({}));  // all have given back what they had to time products
    }
    return {.host = host::available_bytes() / comm.ranks_on_node() + host::resident_bytes(),
            .device = device_share_bytes(backend, ranks_on_gpu)};
}

// Of the memory that is too small.
std::string too_much(const char* what, const plan::Bytes& need, const plan::Bytes& limit, const std::string& way_out) {
    if (need.host > limit.host)
        return std::string(what) + " needs " + human_bytes(need.host) + " a rank and there are " +
               human_bytes(limit.host) + "; " + way_out;
    return std::string(what) + " needs " + human_bytes(need.device) + " of its GPU's memory a rank and " +
           human_bytes(limit.device) + " are free there; " + way_out;
}
Status judge(const char* what, const plan::Bytes& need, const plan::Bytes& limit,
             const std::function<std::string()>& way_out) {
    if (need.fit(limit)) return {};
    return Error{ErrorCode::kResourceExhausted, too_much(what, need, limit, way_out()), "memory"};
}

// The same with room for how much the program's size varies.
bool fits_well(const plan::Bytes& need, const plan::Bytes& limit) {
    return need.fit({limit.host - kProgramSpreadBytes, limit.device});
}

std::string to_text(const plan::Bytes& need, bool host_reaches_device) {
    const std::string of_host = human_bytes(need.host);
    return host_reaches_device ? of_host : human_bytes(need.device) + " of the GPU, " + of_host + " of the host";
}

// What helps a rank that needs more than its share.
std::string way_out(const PreparedRun& prepared, const plan::MemoryPlan& plan, kernels::Backend& backend, int ranks,
                    const plan::Bytes& limit) {
    const bool host_reaches_device = backend.host_reaches_device();
    const std::string program = human_bytes(plan.program_bytes);
    const bool program_is_too_large = plan.program_bytes > limit.host;
    const bool host_has_too_little = plan.bytes(host_reaches_device).host > limit.host;
    if (host_has_too_little &&
        (prepared.unseen_bytes > plan.total_bytes() / 2 || (prepared.unseen_bytes > 0 && program_is_too_large))) {
        return "the program and MPI take " + program +
               " of it with so many ranks on one machine; --ranks-per-node says how many it has";
    }
    if (program_is_too_large) return "the program alone takes " + program;
    const plan::Settings settings = memory_settings(prepared);
    const auto need = [&](const plan::Settings& candidate) {
        return measure_with(prepared, candidate, backend, 0, ranks).bytes(host_reaches_device);
    };
    const auto nearest =
        plan::nearest_that_fits(settings, ranks, host_reaches_device,
                                [&](const plan::Settings& candidate) { return fits_well(need(candidate), limit); });
    if (!nearest) return "no other settings fit on so few ranks";
    const std::string at_once = nearest->save_async == settings.save_async ? "" : " --save-async off";
    const bool same_layers = nearest->checkpoint_layers == settings.checkpoint_layers;
    return "the nearest that fits: " + plan::to_flags(*nearest) + (same_layers ? "" : " --checkpoint-layers 0") +
           at_once + " (" + to_text(need(*nearest), host_reaches_device) + ")";
}

// The same for a command that only reads the model.
std::string smaller_batch(const kernels::Backend& backend, std::int64_t rows,
                          const std::function<plan::Bytes(std::int64_t rows)>& need_bytes, const plan::Bytes& limit) {
    while ((rows /= 2) > 0) {
        const plan::Bytes need = need_bytes(rows);
        if (fits_well(need, limit))
            return "the nearest that fits: --batch-size " + std::to_string(rows) + " (" +
                   to_text(need, backend.host_reaches_device()) + ")";
    }
    return std::string(
               "--precision bf16 and --quantize keep the weights in less, --sharding full_shard divides them "
               "among ranks") +
           (backend.host_reaches_device() ? "" : ", --offload-params cpu leaves them to the host");
}

}  // namespace

plan::Settings memory_settings(const PreparedRun& prepared) {
    return {.sharding = prepared.config.sharding,
            .batch_size = prepared.batch.micro,
            .grad_accum = prepared.batch.accumulation,
            .activation_checkpointing = prepared.config.activation_checkpointing,
            .checkpoint_layers = prepared.config.checkpoint_layers,
            .offload_optimizer = prepared.config.offload_optimizer,
            .save_async = prepared.config.save_async,
            .offload_params = prepared.config.offload_params};
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
    options.offload_params = settings.offload_params;
    plan::MemoryPlan plan = parallel::RunMemory::measure(backend, prepared.directory.model, options);
    plan.program_bytes += prepared.unseen_bytes + model_io::save_buffer_bytes(prepared.directory.model,
                                                                              prepared.directory.adapters.has_value());
    return plan;
}

std::int64_t device_share_bytes(const kernels::Backend& backend, int ranks) {
    const auto memory = backend.device_memory();
    if (!memory) return std::numeric_limits<std::int64_t>::max();
    return memory->free / ranks - kDriverSpareBytes;
}

Status check_memory(const PreparedRun& prepared, kernels::Backend& backend, int ranks, const plan::Bytes& limit) {
    const plan::MemoryPlan plan = measure_with(prepared, memory_settings(prepared), backend, 0, ranks);
    return judge("this run", plan.bytes(backend.host_reaches_device()), limit,
                 [&] { return way_out(prepared, plan, backend, ranks, limit); });
}

Status check_fits(const PreparedRun& prepared, kernels::Backend& backend, comm::Comm& comm) {
    return comm.agree(check_memory(prepared, backend, comm.size(), share_bytes(backend, comm)));
}

Status check_fits(const kernels::Backend& backend, std::int64_t rows,
                  const std::function<plan::Bytes(std::int64_t rows)>& need_bytes, comm::Comm& comm) {
    const plan::Bytes limit = share_bytes(backend, comm);
    return comm.agree(
        judge("this", need_bytes(rows), limit, [&] { return smaller_batch(backend, rows, need_bytes, limit); }));
}

}  // namespace atl::train
