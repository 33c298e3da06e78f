#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/optim/loss_scale.h"
#include "trainer/parallel/parameter_store.h"

// What a stopped run needs to go on bit for bit: weights that train (in fp32: the masters where there are some), their
// moments and counters, in one safetensors file beside --out. It names no rank and no sharding, so any number of ranks
// may continue it.
//
//   ATOLL_RETURN_IF_ERROR(prepare_checkpoint(out));                              // rank 0, before the first step
//   ATOLL_TRY(auto state, load_checkpoint(checkpoint_file(out), store, …));      // with --resume
//   ATOLL_RETURN_IF_ERROR(save_checkpoint(checkpoint_file(out), store, …));      // every --save-every steps, at a stop
//   ATOLL_RETURN_IF_ERROR(write_finished(out, fingerprint));                     // rank 0, before the result appears
//   ATOLL_RETURN_IF_ERROR(finish_checkpoint(out, fingerprint));                  // rank 0, once it is there
namespace atl::checkpoint {

// Where a run stands. The position in the data follows from the number of steps.
struct TrainerState {
    std::int64_t steps = 0;   // done
    std::int64_t tokens = 0;  // targets so far
    double loss_sum = 0;      // over those
    double final_loss = 0;    // of the last step
    double wall_s = 0;
    optim::LossScale loss_scale;

    // Steps that changed the weights: what the optimizer counts.
    std::int64_t updates() const { return steps - loss_scale.skipped; }
    bool operator==(const TrainerState&) const = default;
};

// "OUT.state/state.safetensors".
std::filesystem::path checkpoint_file(const std::filesystem::path& out);

// Whether that directory has a file of this name.
bool is_checkpoint_file(std::string_view name);

// Makes that directory and takes what a killed process left in it: a run that could not save there is told before its
// first step. On one rank.
Status prepare_checkpoint(const std::filesystem::path& out);

// The state goes, and with it the record of a run that finished; what others put there stays. On one rank.
Status remove_checkpoint(const std::filesystem::path& out);

// A record of the run whose result is, or will be, in `out`: it says nothing where there is a state or no result. On
// one rank.
Status write_finished(const std::filesystem::path& out, const std::string& fingerprint);

// The same in the place of the state. On one rank.
Status finish_checkpoint(const std::filesystem::path& out, const std::string& fingerprint);

// The fingerprint in that record; absent: there is none.
Result<std::optional<std::string>> read_finished(const std::filesystem::path& out);

// What differs between the fingerprint that a run had and this one, with both values: "--lr 0.001 (now 0.002),
// model.rope_theta 10000.0 (now 500.0)"; a key of "flags" is the name of a flag. Empty: nothing.
std::string differences(const std::string& had, const std::string& now);

// `fingerprint` is a JSON object of objects of all that must be the same in the run that goes on. Appears whole or not
// at all. kInvalidArgument: a value is not finite (a weight also in the format that the model computes with), so no run
// could go on from it; what was there stays. Every rank takes part and gets the same outcome.
Status save_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store, kernels::Backend& backend,
                       comm::Comm& comm, const TrainerState& state, const std::string& fingerprint);

// Absent: there is no such file, on rank 0. kConflict names what differs in the fingerprint, with both values, or a
// rank sees another state than rank 0. kInvalidArgument: it is damaged (each tensor and the metadata have their sha256
// in the file), or of another version. Other kernels than those of the run before are told on standard error, or with
// `deterministic` kConflict. Every rank takes part, reads the file and gets the same outcome.
Result<std::optional<TrainerState>> load_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store,
                                                    kernels::Backend& backend, comm::Comm& comm,
                                                    const std::string& fingerprint, bool deterministic);

}  // namespace atl::checkpoint
