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

// Bytes of the host's memory and of a device's own, that a rank takes or may take.
struct Bytes {
    std::int64_t host = 0, device = 0;
    // Where the device's memory is the host's own, all of it is the host's.
    Bytes on(bool host_reaches_device) const { return host_reaches_device ? Bytes{host + device, 0} : *this; }
    bool fit(const Bytes& limit) const { return host <= limit.host && device <= limit.device; }
};

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
    // What is still to be taken, once the backend has what it keeps.
    Bytes bytes(bool host_reaches_device) const {
        return Bytes{pinned_bytes + program_bytes + staging_bytes, device_bytes}.on(host_reaches_device);
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
    run_settings::Offload offload_params = run_settings::Offload::kNone;
    bool operator==(const Settings&) const = default;
};
std::string to_flags(const Settings& settings);  // "--sharding full_shard --batch-size 2 …"

// Settings that take less memory for the same steps, in order of how much they slow a run down: saving at once, without
// a copy, then recomputation, then sharding, then smaller micro-steps with more accumulation, then all of it; the same
// with the optimizer's state in the host's memory, then with the weights there, too, where a device has memory of its
// own; the same with the optimizer's state on a disk.
std::vector<Settings> smaller_settings(const Settings& settings, int ranks, bool host_reaches_device);

// The first of those that fits; absent: none.
std::optional<Settings> nearest_that_fits(const Settings& settings, int ranks, bool host_reaches_device,
                                          const std::function<bool(const Settings&)>& fits);

}  // namespace atl::plan
