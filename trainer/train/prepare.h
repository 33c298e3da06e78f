#pragma once

#include <memory>
#include <optional>

#include "shared/run_settings/run_settings.h"
#include "shared/run_settings/schedule.h"
#include "trainer/comm/comm.h"
#include "trainer/dataset/dataset.h"
#include "trainer/model_io/control_variate_io.h"
#include "trainer/model_io/model_directory.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/run_memory.h"

namespace atl::train {

using run_settings::RunConfig;

// Data that was opened and checked against the model.
struct CheckedData {
    dataset::Dataset dataset;
    std::int64_t rows = 0;  // used: all, or the first --train-samples
};

// Rows that a command reads.
struct DataSelection {
    std::string path;
    const char* flag = "";         // that names it, for messages
    std::int64_t samples_max = 0;  // rows used at most; 0: all
    // Where fewer rows than that would be left out all are used: the loss of all would tell that of those few.
    std::int64_t left_out_min = 0;
};
// Opens data for a model: its rows are not longer than the model allows, its ids are in the vocabulary, its tokenizer
// is the model's, and some label counts. Each rank checks its part of the rows; all get the same outcome.
Result<CheckedData> open_data(const RunConfig& config, const DataSelection& choice,
                              const model_io::ModelDirectory& directory, comm::Comm& comm);

// A training run, everything about it decided and checked.
struct PreparedRun {
    RunConfig config;
    model_io::ModelDirectory directory;
    CheckedData data;
    std::optional<CheckedData> validation;
    run_settings::BatchPlan batch = {};
    std::int64_t steps = 0;
    optim::Optimizer optimizer = {};
    run_settings::Schedule schedule = {};
    run_settings::Schedule embedding_schedule = {};  // see parallel::ParameterStore::Update
    int shard_group = 0;                             // of the hybrid modes
    std::string base_sha256 = {};                    // of the model: its base_digest(), once it was read
    std::string adapter_sha256 = {};                 // of the adapter that it begins with; empty: of none
    std::optional<model_io::ControlVariateSource> control_variate = {};  // with --control-variate, once it was read
    // That makes the ranks' groups; null, until it was chosen: MPI.
    std::shared_ptr<const parallel::ExchangeLibrary> exchange = {};
    std::int64_t unseen_bytes = 0;  // of a run's program that a process which only plans it does not have

    std::int64_t seq_len() const { return data.dataset.seq_len(); }
    // How often what is done every so often is done in the first `step` steps.
    std::int64_t times(const run_settings::Interval& every, std::int64_t step) const {
        return every.times(step, batch.global, data.rows);
    }
    bool is_after(const run_settings::Interval& every, std::int64_t step) const {
        return times(every, step) > times(every, step - 1);
    }
};

// How many ranks a run has and how many of them are on one machine: those of comm, unless the run is only planned.
struct RankCounts {
    int ranks = 1;
    int on_node = 1;
};
RankCounts rank_counts(comm::Comm& comm);

// Where an offloaded optimizer's file goes: --offload-dir, or else $TMPDIR. kInvalidArgument: neither is given.
Status settle_offload_dir(RunConfig& config);

// How the ranks of comm share a model that is only read. The same outcome on every rank.
Result<parallel::ParallelLayout> choose_layout(const RunConfig& config, comm::Comm& comm);

// Errors name the flag or the file. Every rank takes part and gets the same outcome.
Result<PreparedRun> prepare_training(const RunConfig& config, comm::Comm& comm, const RankCounts& counts,
                                     model_io::Weights wanted = model_io::Weights::kNeeded);
// Of a run with --control-variate: what corrects its gradients, which is read for this. The same outcome on every rank.
Status read_control_variates(PreparedRun& prepared, comm::Comm& comm);
parallel::RunMemoryOptions run_memory_options(const PreparedRun& prepared, int rank, int ranks);

// Opens the model directory on every rank, with the adapters that the run asks for; all get the same outcome.
// kInvalidArgument names the flag: --lora flags that contradict the adapter, or that mean nothing without --lora-rank.
Result<model_io::ModelDirectory> open_model(const RunConfig& config, comm::Comm& comm,
                                            model_io::Weights wanted = model_io::Weights::kNeeded);
// The same for a command that only reads the model: it is to be kept in these formats.
Result<model_io::ModelDirectory> open_model_to_read(const RunConfig& config, comm::Comm& comm);
// Compares that model with what its adapters were trained on, for which it may read all weights. Every rank takes part
// and gets the same outcome.
Status compare_with_adapters(const model_io::ModelDirectory& directory, const RunConfig& config, comm::Comm& comm);

// What --precision and the flags beside it ask for.
kernels::Formats formats_of(const RunConfig& config);

// Rank 0 says on standard error what of the adapters does not suit the model: they were trained on it in another
// format, or have a higher rank than its matrices.
void warn_of_adapters(const model_io::ModelDirectory& directory, const RunConfig& config, const comm::Comm& comm);

}  // namespace atl::train
