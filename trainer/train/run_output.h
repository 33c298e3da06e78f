#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/model_io/weights_io.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/prepare.h"

namespace atl::train {

// What a run writes: its result, its states and its exit.json, and what to say of them when they cannot be written.
// Nobody else writes there while it lives. Every rank makes the same calls and gets the same outcomes; of an error one
// rank has the message.
//
//   ATOLL_RETURN_IF_ERROR(output.open());                        // before the first step
//   ATOLL_TRY(const auto state, output.load_state());            // with --resume
//   ATOLL_RETURN_IF_ERROR(output.check_room(steps_done));
//   ATOLL_RETURN_IF_ERROR(output.take_over());                   // once nothing is left to be refused
//   ATOLL_RETURN_IF_ERROR(output.save(state));                   // after steps, at a stop
//   ATOLL_RETURN_IF_ERROR(output.save_result());                 // at the end
//   ATOLL_RETURN_IF_ERROR(output.record(summary, is_stopped));
class RunOutput {
  public:
    using TrainerState = checkpoint::TrainerState;

    // `fingerprint`: see run_fingerprint(). All must outlive it.
    RunOutput(const PreparedRun& prepared, std::string fingerprint, parallel::RunMemory& memory,
              kernels::Backend& backend, comm::Comm& comm);

    // Takes --out and OUT.state for this run, and of the base what the result needs: it may go then.
    Status open();
    // Makes room in memory for the copies that --save-async writes.
    Status prepare_async();
    // Absent: there is none.
    Result<std::optional<TrainerState>> load_state();
    // With --optimizer-from: how many updates its moments have seen; 0: --optimizer-if-named leaves them out, with a
    // warning.
    Result<std::int64_t> load_optimizer();
    // On the disk, for what a run writes that has done so many steps.
    Status check_room(std::int64_t steps_done);
    // From a run that stopped: what tells of it, and without --resume its state.
    Status take_over();

    // Waits for the state under way and writes this one. The error says what is lost, or where this state is instead.
    Status save(const TrainerState& state);
    // With --save-async: begins to write it while steps go on.
    Status begin_save(const TrainerState& state);
    // What became of the state under way, once it is done; ok before. The error is told by save(), which the caller
    // tries then with a later state.
    Status progress();
    // Waits for it, where the run goes on without: an error is told.
    void wait_for_save();
    bool saves_aside() const { return async_saver_.has_value(); }
    bool is_saving() const { return saving_steps_.has_value(); }
    bool has_state() const { return saved_steps_.has_value(); }
    // How long the last state took. Before the first: 0.
    double save_s() const { return save_s_; }

    // The model as it is, in the place of what best_directory() has. After an error what was there is still there, or
    // nothing that can be read.
    Status save_best();

    // The model, and with --keep-optimizer before it the optimizer of this state: where there is a result, so is that.
    Status save_result(const TrainerState& state);
    // What the result could not be saved of is kept as a state, so that only the saving is to be done again.
    struct Kept {
        Status outcome;             // the message of save_result()'s error with how the run goes on
        bool is_resumable = false;  // by the same command with --resume
        bool is_final = false;      // else a state before it may be there to go on from
    };
    Kept keep_unsaved(const Status& failed, const TrainerState& state);

    // The end of a run: exit.json when it was stopped, else the record of its result in the place of the state.
    Status record(const Summary& summary, bool is_stopped);
    std::filesystem::path state_directory() const;
    // On rank 0, once it is open: whether --rounding-error-if-named leaves out what rounding lost before.
    bool begins_without_error() const { return begins_without_error_; }

  private:
    struct Saved {
        Status status;                                   // of writing it to its place
        std::optional<std::filesystem::path> elsewhere;  // where it is instead: a value for --out
    };
    Status take_output();       // on rank 0
    Status remove_old() const;  // on rank 0
    Status add_token_counts();
    Status add_control_variate(const TrainerState& state);
    Status ready_place();
    Status end_save(bool waits);
    Status write_state(const std::filesystem::path& out, const TrainerState& state);
    Saved try_save(const TrainerState& state);
    // A place that does not have the state that it had when the run began takes none: another is looked for.
    std::optional<std::filesystem::path> save_elsewhere(const TrainerState& state);
    Status save_to(const std::filesystem::path& out, double bytes, const TrainerState& state);
    // When a state cannot be saved for this reason.
    std::string loss_without_state(const Status& failed) const;

    const PreparedRun& prepared_;
    std::string fingerprint_;
    parallel::RunMemory& memory_;
    kernels::Backend& backend_;
    comm::Comm& comm_;
    std::optional<model_io::WeightSaver> saver_;                 // its --out is locked while it lives
    std::optional<checkpoint::StateDirectory> state_directory_;  // on rank 0
    std::optional<checkpoint::AsyncSaver> async_saver_;
    std::optional<std::int64_t> saved_steps_;   // of the state that is there
    std::optional<std::int64_t> saving_steps_;  // of the state under way
    double save_s_ = 0;
    bool begins_without_error_ = false;
};

}  // namespace atl::train
