#include "trainer/train/fit.h"

#include "shared/host/node.h"

namespace atl::train {
namespace {

// What helps a rank that needs more than its share.
std::string way_out(const TrainJob& job, const plan::MemoryPlan& plan, kernels::Backend& backend, int ranks,
                    std::int64_t limit_bytes) {
    const std::string program = plan::human_bytes(plan.program_bytes);
    const bool program_is_too_large = plan.program_bytes > limit_bytes;
    if (job.unseen_bytes > plan.total_bytes() / 2 || (job.unseen_bytes > 0 && program_is_too_large)) {
        return "the program and MPI take " + program +
               " of it with so many ranks on one machine; --ranks-per-node says how many it has";
    }
    if (program_is_too_large) return "the program alone takes " + program;
    const auto need = [&](const plan::Settings& settings) {
        return measure_with(job, settings, backend, 0, ranks).total_bytes();
    };
    const auto nearest = plan::nearest_that_fits(settings_of(job), ranks, limit_bytes, need);
    if (!nearest) return "no other settings fit on so few ranks";
    return "the nearest that fits: " + plan::to_flags(*nearest) + " (" + plan::human_bytes(need(*nearest)) + ")";
}

// The same for a command that only reads the model.
std::string smaller_batch(std::int64_t rows, const std::function<std::int64_t(std::int64_t rows)>& need_bytes,
                          std::int64_t limit_bytes) {
    while ((rows /= 2) > 0) {
        const std::int64_t need = need_bytes(rows);
        if (need <= limit_bytes)
            return "the nearest that fits: --batch-size " + std::to_string(rows) + " (" + plan::human_bytes(need) + ")";
    }
    return "--precision bf16 and --quantize keep the weights in less, --sharding full_shard divides them among ranks";
}

Error too_much(const char* what, std::int64_t need_bytes, std::int64_t limit_bytes, const std::string& way_out) {
    return {ErrorCode::kResourceExhausted,
            std::string(what) + " needs " + plan::human_bytes(need_bytes) + " a rank and there are " +
                plan::human_bytes(limit_bytes) + "; " + way_out,
            "memory"};
}

// What each rank of this machine may take. What the program has is counted in the need and no longer available.
std::int64_t share_bytes(comm::Comm& comm) {
    return host::available_bytes() / comm.ranks_on_node() + host::resident_bytes();
}

}  // namespace

plan::Settings settings_of(const TrainJob& job) {
    return {.sharding = job.config.sharding,
            .batch_size = job.batch.micro,
            .grad_accum = job.batch.accumulation,
            .activation_checkpointing = job.config.activation_checkpointing,
            .offload_optimizer = job.config.offload_optimizer};
}

plan::MemoryPlan measure_with(const TrainJob& job, const plan::Settings& settings, kernels::Backend& backend, int rank,
                              int ranks) {
    parallel::LayoutOptions options = layout_of(job, rank, ranks);
    const auto sharding = parallel::parse_sharding(settings.sharding);
    check(sharding.ok(), "a plan with a sharding that is not built");
    options.division = parallel::divide(*sharding, rank, ranks, job.shard_group);
    options.engine.largest.batch = settings.batch_size;
    options.engine.reduce.accumulation = settings.grad_accum;
    const auto recompute = parallel::parse_recompute(settings.activation_checkpointing);
    check(recompute.ok(), "a plan with a recomputation that there is not");
    options.engine.recompute = *recompute;
    options.offload_optimizer = settings.offload_optimizer == "nvme";
    plan::MemoryPlan plan = parallel::RunMemory::measure(backend, job.directory.model, options);
    plan.program_bytes +=
        job.unseen_bytes + checkpoint::save_buffer_bytes(job.directory.model, job.directory.adapters.has_value());
    return plan;
}

Status judge(const TrainJob& job, kernels::Backend& backend, int ranks, std::int64_t limit_bytes) {
    const plan::MemoryPlan plan = measure_with(job, settings_of(job), backend, 0, ranks);
    if (plan.total_bytes() <= limit_bytes) return {};
    return too_much("this run", plan.total_bytes(), limit_bytes, way_out(job, plan, backend, ranks, limit_bytes));
}

Status check_fits(const TrainJob& job, kernels::Backend& backend, comm::Comm& comm) {
    return comm.agree(judge(job, backend, comm.size(), share_bytes(comm)));
}

Status check_fits(std::int64_t rows, const std::function<std::int64_t(std::int64_t rows)>& need_bytes,
                  comm::Comm& comm) {
    const std::int64_t limit = share_bytes(comm), need = need_bytes(rows);
    if (need <= limit) return comm.agree({});
    return comm.agree(too_much("this", need, limit, smaller_batch(rows, need_bytes, limit)));
}

}  // namespace atl::train
