#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shared/run_settings/choices.h"
#include "trainer/tensor/arena.h"

// What a run will need of a rank's memory, known before it begins, and what to change when that is too much.
namespace atl::plan {

// Bytes of one rank. `categories` are exact: the run lays out its memory by the same code over a measuring arena.
struct MemoryPlan {
    std::array<std::int64_t, tensor::kCategoryCount> categories{};
    // All categories with their alignment: what is allocated of the device's memory, and of pinned memory of the host.
    // On a CPU they are the same memory.
    std::int64_t device_bytes = 0, pinned_bytes = 0;
    std::int64_t backend_bytes = 0;    // of the device's memory, what its backend keeps for itself; 0 on a CPU
    std::int64_t program_bytes = 0;    // the program, its libraries and buffers: this process's resident size by now
    std::int64_t staging_bytes = 0;    // with --save-async, of the host: the copy that is being written
    std::int64_t offloaded_bytes = 0;  // on a disk instead
    std::int64_t total_bytes() const {
        return device_bytes + pinned_bytes + backend_bytes + program_bytes + staging_bytes;
    }
    // Of the host: all where its memory is the device's.
    std::int64_t host_bytes(bool host_reaches_device) const {
        return total_bytes() - (host_reaches_device ? 0 : device_bytes + backend_bytes);
    }
};

MemoryPlan read_plan(const tensor::Arena& device, const tensor::Arena& pinned, std::int64_t program_bytes);

// The settings that decide how much memory a run takes.
struct Settings {
    run_settings::Sharding sharding = run_settings::Sharding::kNone;
    std::int64_t batch_size = 1;  // sequences a rank and micro-step
    std::int64_t grad_accum = 1;
    run_settings::ActivationCheckpointing activation_checkpointing = run_settings::ActivationCheckpointing::kNone;
    std::int64_t checkpoint_layers = 0;
    run_settings::Offload offload_optimizer = run_settings::Offload::kNone;
    run_settings::OnOff save_async = run_settings::OnOff::kOff;
    bool operator==(const Settings&) const = default;
};
std::string to_flags(const Settings& settings);  // "--sharding full_shard --batch-size 2 …"

// Settings that take less memory for the same steps, in order of how much they slow a run down: saving at once, without
// a copy, then recomputation, then sharding, then smaller micro-steps with more accumulation, then all of it, then the
// optimizer's state on a disk.
std::vector<Settings> smaller_settings(const Settings& settings, int ranks);

// The first of those whose need is at most `limit_bytes`; absent: none.
std::optional<Settings> nearest_that_fits(const Settings& settings, int ranks, std::int64_t limit_bytes,
                                          const std::function<std::int64_t(const Settings&)>& need_bytes);

}  // namespace atl::plan
