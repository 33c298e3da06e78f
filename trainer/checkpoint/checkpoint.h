#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "trainer/parallel/parameter_store.h"

// What a stopped run needs to go on bit for bit: weights that train (in fp32: the masters where there are some), their
// moments and counters, in safetensors files beside --out, one a rank, which all ranks write at once (see
// state_format.h). They name no rank and no sharding, so any number of ranks may continue it, each of which reads what
// it keeps. All ranks have the same part of the model (Mesh). That is what torch.distributed.checkpoint does, and
// AsyncSaver what its async_save does.
//
//   ATOLL_TRY(auto directory, StateDirectory::open(out));                        // rank 0, before the first step
//   ATOLL_TRY(auto state, load_checkpoint(checkpoint_file(out), store, …));      // with --resume
//   ATOLL_RETURN_IF_ERROR(save_checkpoint(checkpoint_file(out), store, …));      // every --save-every steps, at a stop
//   ATOLL_RETURN_IF_ERROR(saver.begin(state));                                   // or so, while steps go on
//   ATOLL_RETURN_IF_ERROR(directory.write_finished(fingerprint));                // rank 0, before the result appears
//   ATOLL_RETURN_IF_ERROR(directory.finish(fingerprint));                        // rank 0, once it is there
namespace atl::checkpoint {

// Where a run stands. The position in the data follows from the number of steps.
struct TrainerState {
    std::int64_t steps = 0;   // done
    std::int64_t tokens = 0;  // targets so far
    double loss_sum = 0;      // over those
    double final_loss = 0;    // the last that was told
    double untold_loss = 0;   // the sum over the newest steps, which have too few targets for their loss to be told
    std::int64_t untold_tokens = 0;  // the targets of those
    double wall_s = 0;
    double loss_scale = 1;           // of the next step; 1: nothing is scaled
    std::int64_t good_steps = 0;     // since the loss scale changed
    std::int64_t skipped_steps = 0;  // which changed no weights
    // Of the optimizer before this run: those that its moments were made of when it began.
    std::int64_t earlier_updates = 0;

    // Of the validations after which the model was kept, the last and its loss, the lowest so far; 0: there is none.
    std::int64_t best_step = 0;
    double best_loss = 0;

    // Of the optimizer so far.
    std::int64_t updates() const { return earlier_updates + steps - skipped_steps; }
    bool operator==(const TrainerState&) const = default;
};

// "OUT.state/state.safetensors", which is there when a state is.
std::filesystem::path checkpoint_file(const std::filesystem::path& out);

// "OUT.state/optimizer.safetensors": what a run with --keep-optimizer leaves.
std::filesystem::path optimizer_file(const std::filesystem::path& out);

// "OUT.state/control_variate.safetensors": what a run with --control-variate leaves.
std::filesystem::path control_variate_file(const std::filesystem::path& out);

// Whether that directory has a file of one of these names.
bool is_checkpoint_file(std::string_view name);

// OUT.state for one run: no other process of this machine has it meanwhile. On one rank. While it lives the directory
// is locked, also when OUT itself is renamed and another run makes a new one; only who has this object changes or
// removes anything there.
class StateDirectory {
  public:
    // Makes the directory and removes what a killed process left in it, files of a state that was never whole too: a
    // run that could not save there is told before its first step. kConflict: another run has it.
    static Result<StateDirectory> open(const std::filesystem::path& out);
    StateDirectory(StateDirectory&& other) noexcept;
    StateDirectory& operator=(StateDirectory&&) = delete;
    ~StateDirectory();  // removes the directory if it is empty and still at its place

    // Makes the directory again where it was removed or renamed meanwhile, and warns. kConflict: what has its place now
    // is not an empty directory.
    Status restore();
    // Where the directory is now, whatever its name; absent: it was removed.
    std::optional<std::filesystem::path> current_path() const;

    // The state goes, and with it the record of a run that finished; what others put there stays.
    Status remove_state() const;
    // Writes a record of the run whose result is, or will be, in OUT: it says nothing where there is a state or no
    // result.
    Status write_finished(const std::string& fingerprint) const;
    // The same in the place of the state.
    Status finish(const std::string& fingerprint) const;

  private:
    StateDirectory(std::filesystem::path path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

    std::filesystem::path path_;
    UniqueFd lock_;
};

// After StateDirectory::open() on rank 0, by every rank: kInvalidArgument names --out and the rank when one does not
// see the directory that rank 0 made, so that no state which is saved there could ever be read. All get the same
// outcome.
Status check_directory_is_shared(const std::filesystem::path& out, comm::Comm& comm);

// What that directory's files take. On one rank.
std::uint64_t bytes_on_disk(const std::filesystem::path& out);

// The fingerprint in that record; absent: there is none.
Result<std::optional<std::string>> read_finished(const std::filesystem::path& out);

// What differs between the fingerprint that a run had and this one, with both values: "--lr 0.001 (now 0.002),
// model.rope_theta 10000.0 (now 500.0)"; a key of "flags" is the name of a flag. Empty: nothing.
std::string differences(const std::string& had, const std::string& now);

// `fingerprint` is a JSON object of objects of all that must be the same in the run that goes on. Appears whole or not
// at all. kInvalidArgument: a value is not finite (a weight also in the format that the model computes with), so no run
// could go on from it; what was there stays. Every rank takes part and writes its part, into a directory that all see;
// all get the same outcome.
Status save_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store, kernels::Backend& backend,
                       comm::Comm& comm, const TrainerState& state, const std::string& fingerprint);

// What the optimizer has made of the gradients (its moments, and of how many updates they are), without the weights:
// another run of the same model and optimizer may begin with it. `fingerprint` names those, `name` the run. Else as
// save_checkpoint().
Status save_optimizer(const std::filesystem::path& file, parallel::ParameterStore& store, kernels::Backend& backend,
                      comm::Comm& comm, const TrainerState& state, const std::string& fingerprint,
                      const std::string& name);
// What this rank writes of it.
std::int64_t own_optimizer_bytes(const parallel::ParameterStore& store);
// Of how many updates it is. kNotFound: there is none. kConflict: it has another name; empty: any will do. Other
// kernels than it was made with are no error: its values are taken as they are. Else as load_checkpoint(). After an
// error the moments in `store` may be partly its.
Result<std::int64_t> load_optimizer(const std::filesystem::path& file, parallel::ParameterStore& store,
                                    kernels::Backend& backend, comm::Comm& comm, const std::string& fingerprint,
                                    const std::string& name);
// Stands for every byte of it that counts. On one rank. Errors as load_optimizer().
Result<std::string> optimizer_digest(const std::filesystem::path& file);

// Saves states while steps go on: a copy of what this rank saves is written by a thread. The copy's memory is taken at
// the beginning. Every rank calls the same, from the thread that uses MPI, and gets the same outcome; errors are those
// of save_checkpoint().
//
//   ATOLL_TRY(auto saver, AsyncSaver::create(checkpoint_file(out), store, backend, comm, fingerprint));
//   ATOLL_RETURN_IF_ERROR(saver.begin(state));  // after a step: as long as the copy takes
//   ATOLL_RETURN_IF_ERROR(saver.progress());    // after every step: the state appears once all ranks have written it
//   ATOLL_RETURN_IF_ERROR(saver.wait());        // at the end
class AsyncSaver {
  public:
    // kResourceExhausted: there is no memory for the copy.
    static Result<AsyncSaver> create(const std::filesystem::path& file, parallel::ParameterStore& store,
                                     kernels::Backend& backend, comm::Comm& comm, const std::string& fingerprint);
    AsyncSaver(AsyncSaver&&) noexcept;
    AsyncSaver& operator=(AsyncSaver&&) noexcept;
    ~AsyncSaver();  // waits for the thread, and no state appears of what is under way

    // Waits for the state before, whose error is then the outcome, and begins with this one.
    Status begin(const TrainerState& state);
    bool is_saving() const;
    // What became of the state under way, once it is done; ok before.
    Status progress();
    Status wait();
    // How long this rank copied and wrote the last state.
    double took_s() const;

  private:
    struct Impl;
    explicit AsyncSaver(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Absent: there is no such file, on rank 0. kConflict names what differs in the fingerprint, with both values, or a
// rank sees another state than rank 0. kInvalidArgument: it is damaged (each tensor and the metadata have their sha256
// in the file), a file of it is missing or of another state, or it is of another version. Other kernels than those of
// the run before are told on standard error, or with `deterministic` kConflict. Every rank takes part, reads what it
// keeps and its share of what the digests are checked of, and gets the same outcome.
Result<std::optional<TrainerState>> load_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store,
                                                    kernels::Backend& backend, comm::Comm& comm,
                                                    const std::string& fingerprint, bool deterministic);

}  // namespace atl::checkpoint
