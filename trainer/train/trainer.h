#pragma once

#include <deque>
#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/parallel/training_step.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/pace.h"
#include "trainer/train/run_output.h"
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
    Status start();  // loads the weights, or a saved state; closes the model directory
    Status begin_control_variate();
    Status train_and_save();
    Status steps();  // until done or stopped
    Status finish();
    Status keep_unsaved(const Status& failed);  // the result could not be saved: the state is instead
    // Asks the device for a step. What it makes of it comes with read_step(), as many at a time as there are.
    Status begin_step(std::int64_t number);
    Result<StepMetrics> read_step();
    // Gives the step its loss, together with those before it that were too small to be told, or keeps it for the next.
    void tell_loss(StepMetrics& metrics, double loss_sum, std::int64_t targets);
    Status print_steps(std::int64_t last);  // reads and prints steps until that one
    bool scales_loss() const { return prepared_.config.scales_loss(); }
    // kTooLarge: the error of a step whose loss or gradient is not finite; one rank's has the message.
    Error not_finite(std::int64_t number);
    RowPrefetch::Read row_reader() const;
    // This rank's rows of a micro-step (from 0); those after a step's last micro-step are the next step's first, and
    // none after the last step.
    RowRange own_rows(std::int64_t step, std::int64_t micro) const;
    bool validates_after(std::int64_t step) const;
    bool saves_after(std::int64_t step) const;
    std::optional<Perplexity> validate();             // absent: left out, as the run shall stop
    void keep_if_best(const Perplexity& validation);  // --save-best
    // Whether to stop now: what would come next needs so long.
    bool must_stop(double needed_s);
    bool stops_for(StopCause mine);  // on any rank
    void tell_stop() const;
    checkpoint::TrainerState state_now() const;
    Status save();
    Status begin_save();    // --save-async
    void begin_interval();  // of --save-interval
    void note_save_time();
    Status watch_save(std::int64_t number);
    std::int64_t peak_bytes() const;  // the largest of all ranks; all of them ask
    // Adds what depends on the time that the step took, and takes the most of all ranks where they differ.
    void report_rates(StepMetrics& metrics, double step_s);
    Summary summary() const;  // all ranks ask

    PreparedRun& prepared_;
    parallel::RunMemory& memory_;
    kernels::Backend& backend_;
    comm::Comm& comm_;
    parallel::ProcessGroups ranks_;
    parallel::TrainingStep step_;
    dataset::RowOrder order_;
    RowPrefetch prefetch_;
    const StopRequest& stop_;
    double peak_flops_;  // of all ranks together; 0: unknown
    RunOutput output_;
    checkpoint::TrainerState state_;
    struct BegunStep {
        std::int64_t number = 0;
        double learning_rate = 0;
        parallel::TrainingStep::Begun asked;
        double waited_s = 0;  // for other ranks, by the host while it asked
    };
    std::deque<BegunStep> begun_;  // not read yet
    LastTimes took_;
    double started_s_ = 0;      // on the steady clock
    double saved_s_ = 0;        // the last state was saved, or the run began
    bool is_save_due_ = false;  // by --save-interval, after the next step
    std::optional<Pace> pace_;  // from the first step on
    StopCause stop_cause_ = StopCause::kNone;
    bool stopped_ = false;
    StepTrace trace_;
};

}  // namespace atl::train
