#include "trainer/plan/memory.h"

#include <algorithm>
#include <utility>

namespace atl::plan {

using run_settings::ActivationCheckpointing;
using run_settings::Offload;
using run_settings::OnOff;
using run_settings::Sharding;

MemoryPlan read_plan(const tensor::Arena& device, const tensor::Arena& pinned, std::int64_t program_bytes) {
    MemoryPlan plan;
    for (int i = 0; i < tensor::kCategoryCount; ++i) {
        const auto category = static_cast<tensor::Category>(i);
        plan.categories[static_cast<std::size_t>(i)] = device.peak_bytes(category) + pinned.peak_bytes(category);
    }
    plan.device_bytes = device.peak_bytes();
    plan.pinned_bytes = pinned.peak_bytes();
    plan.program_bytes = program_bytes;
    return plan;
}

std::string to_flags(const Settings& settings) {
    return "--sharding " + std::string(to_string(settings.sharding)) + " --batch-size " +
           std::to_string(settings.batch_size) + " --grad-accum " + std::to_string(settings.grad_accum) +
           " --activation-checkpointing " + std::string(to_string(settings.activation_checkpointing)) +
           (settings.checkpoint_layers > 0 ? " --checkpoint-layers " + std::to_string(settings.checkpoint_layers)
                                           : std::string()) +
           (settings.offload_params == Offload::kCpu ? " --offload-params cpu" : "") +
           (settings.offload_optimizer == Offload::kCpu    ? " --offload-optimizer cpu"
            : settings.offload_optimizer == Offload::kNvme ? " --offload-optimizer nvme --offload-dir DIR"
                                                           : "");
}

std::vector<Settings> smaller_settings(const Settings& settings, int ranks, bool host_reaches_device) {
    std::vector<Settings> all;
    const auto add = [&](const Settings& candidate) {
        if (candidate != settings && std::ranges::find(all, candidate) == all.end()) all.push_back(candidate);
    };
    std::vector<Sharding> shardings = {settings.sharding};
    if (ranks > 1)
        shardings.insert(shardings.end(), {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard});
    using Recomputation = std::pair<ActivationCheckpointing, std::int64_t>;
    std::vector<Recomputation> recomputations = {{settings.activation_checkpointing, settings.checkpoint_layers}};
    for (const auto what : {ActivationCheckpointing::kFeedForward, ActivationCheckpointing::kSelective,
                            ActivationCheckpointing::kAllButAttention, ActivationCheckpointing::kFull})
        recomputations.emplace_back(what, 0);
    struct Offloads {
        Offload params, optimizer;
    };
    std::vector<Offloads> offloads = {{settings.offload_params, settings.offload_optimizer}};
    const bool on_disk = settings.offload_optimizer == Offload::kNvme;
    const Offload on_host = on_disk ? Offload::kNvme : Offload::kCpu;
    if (!host_reaches_device)
        offloads.insert(offloads.end(), {{settings.offload_params, on_host}, {Offload::kCpu, on_host}});
    if (!on_disk) offloads.push_back({host_reaches_device ? settings.offload_params : Offload::kCpu, Offload::kNvme});
    for (const auto& [params, optimizer] : offloads) {
        for (std::int64_t divisor = 1; divisor <= settings.batch_size; ++divisor) {
            if (settings.batch_size % divisor != 0) continue;
            const std::int64_t sequences = settings.batch_size / divisor, accumulation = settings.grad_accum * divisor;
            for (const Sharding sharding : shardings) {
                for (const auto& [what, layers] : recomputations)
                    add({sharding, sequences, accumulation, what, layers, optimizer, OnOff::kOff, params});
            }
        }
    }
    return all;
}

std::optional<Settings> nearest_that_fits(const Settings& settings, int ranks, bool host_reaches_device,
                                          const std::function<bool(const Settings&)>& fits) {
    for (const Settings& candidate : smaller_settings(settings, ranks, host_reaches_device)) {
        if (fits(candidate)) return candidate;
    }
    return std::nullopt;
}

}  // namespace atl::plan
