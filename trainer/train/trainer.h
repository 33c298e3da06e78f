#pragma once

#include <deque>
#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/model_io/weights_io.h"
#include "trainer/parallel/training_step.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/output.h"
#include "trainer/train/pace.h"
#include "trainer/train/step_trace.h"
#include "trainer/train/stop.h"

namespace atl::train {

// Runs a prepared run: steps, validations, state, the final model. Rank 0 prints.
//
//   ATOLL_TRY(PreparedRun prepared, prepare_training(config, comm, rank_counts(comm)));
//   ATOLL_TRY(auto memory, RunMemory::allocate(backend, prepared.directory.model, run_memory_options(prepared, …)));
//   Trainer trainer(prepared, fingerprint, *memory, backend, comm, stop, peak_flops);
//   return trainer.run();
class Trainer {
  public:
    // `fingerprint`: see run_fingerprint(). rank_peak_flops: of this rank, for mfu; 0: unknown.
    Trainer(PreparedRun& prepared, std::string fingerprint, parallel::RunMemory& memory, kernels::Backend& backend,
            comm::Comm& comm, const StopRequest& stop, double rank_peak_flops);

    // The outcome is the same on every rank.
    Status run();

  private:
    Status start();        // loads the weights, or a saved state; closes the model directory
    Status take_output();  // on rank 0
    Status load_state();   // if there is one
    Status check_room();   // on the disk, for what the run writes
    Status take_over();    // from a run that stopped; on rank 0, once nothing is left to be refused
    Status train_and_save();
    Status steps();  // until done or stopped
    Status finish();
    Status save_result();
    // The model could not be saved: saves the state instead, so that only the saving is to be done again. Returns
    // `failed`, whose message then says how.
    Status keep_unsaved(const Status& failed);
    // Asks the device for a step. What it makes of it comes with read_step(), as many at a time as there are.
    Status begin_step(std::int64_t number);
    Result<StepMetrics> read_step();
    Status print_steps(std::int64_t last);  // reads and prints steps until that one
    bool scales_loss() const { return prepared_.config.scales_loss(); }
    // The error of a step whose loss or gradient is not finite; one rank's has the message.
    Error not_finite(std::int64_t number);
    RowPrefetch::Read row_reader() const;
    // This rank's rows of a micro-step (from 0); those after a step's last micro-step are the next step's first, and
    // none after the last step.
    RowRange own_rows(std::int64_t step, std::int64_t micro) const;
    bool validates_after(std::int64_t step) const;
    bool saves_after(std::int64_t step) const;
    bool validate();  // false: left out, as the run shall stop
    // Whether to stop now: what would come next needs so long.
    bool must_stop(double needed_s);
    bool stops_for(StopCause mine);  // on any rank
    void tell_stop() const;
    Status save();
    Status save_or_tell();  // an error says what is lost
    // With --save-async: begins to save while steps go on.
    Status begin_save();
    // What became of the state under way: if it is done, or once it is.
    Status end_save(bool waits);
    // The same where the run goes on without it: an error is told.
    void wait_for_save();
    Status tell_loss(const Status& saved) const;
    // When a state cannot be saved for this reason.
    std::string loss_without_state(const Status& failed) const;
    std::int64_t peak_bytes() const;  // the largest of all ranks; all of them ask
    // Adds what depends on the time that the step took, and takes the most of all ranks where they differ.
    void report_rates(StepMetrics& metrics, double step_s);
    Summary summary() const;  // all ranks ask

    PreparedRun& prepared_;
    std::string fingerprint_;
    parallel::RunMemory& memory_;
    kernels::Backend& backend_;
    comm::Comm& comm_;
    parallel::ProcessGroups ranks_;
    parallel::TrainingStep step_;
    dataset::RowOrder order_;
    RowPrefetch prefetch_;
    const StopRequest& stop_;
    double peak_flops_;  // of all ranks together; 0: unknown
    checkpoint::TrainerState state_;
    struct BegunStep {
        std::int64_t number = 0;
        double learning_rate = 0;
        parallel::TrainingStep::Begun asked;
        double waited_s = 0;  // for other ranks, by the host while it asked
    };
    std::deque<BegunStep> begun_;                                // not read yet
    std::optional<model_io::WeightSaver> saver_;                 // its --out is locked while it lives
    std::optional<checkpoint::StateDirectory> state_directory_;  // on rank 0
    LastTimes took_;
    double started_s_ = 0;                     // on the steady clock
    std::optional<Pace> pace_;                 // from the first step on
    std::optional<std::int64_t> saved_steps_;  // of the state that is there
    std::optional<checkpoint::AsyncSaver> async_saver_;
    std::optional<std::int64_t> saving_steps_;  // of the state under way
    StopCause stop_cause_ = StopCause::kNone;
    bool stopped_ = false;
    StepTrace trace_;
};

}  // namespace atl::train
