#include "trainer/train/run_output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/id.h"
#include "shared/log/log.h"
#include "shared/log/warn.h"
#include "shared/model_config/token_counts.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/trace/trace.h"
#include "trainer/train/output.h"
#include "trainer/train/run_fingerprint.h"
#include "trainer/train/token_counts.h"
#include "trainer/weights/storage.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;

double clock_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Beside --out; tells that a run was stopped, and which.
fs::path exit_file(const fs::path& out) {
    return checkpoint::checkpoint_file(out).parent_path().parent_path() / "exit.json";
}

std::string run_name(const fs::path& out) {
    return checkpoint::checkpoint_file(out).parent_path().stem().string();  // without .state
}

// Values that cannot be written, not a file: the same would fail again.
bool is_of_values(const Status& failed) {
    return !failed.ok() && failed.error().code == ErrorCode::kInvalidArgument;
}

// With more to say, on the rank that tells.
Status with_words(const Status& failed, const std::string& words) {
    if (failed.ok() || failed.error().message.empty()) return failed;
    Error error = failed.error();
    error.message += "; " + words;
    return error;
}

fs::path rounding_error_file(const fs::path& out) {
    return checkpoint::checkpoint_file(out).parent_path() / weights::kRoundingErrorFile;
}

// None: the weights are saved.
std::optional<model_io::SaveDelta> save_delta(const PreparedRun& prepared) {
    const RunConfig& config = prepared.config;
    if (config.update_format == run_settings::UpdateFormat::kModel) return std::nullopt;
    model_io::SaveDelta delta;
    delta.format =
        config.update_format == run_settings::UpdateFormat::kInt8 ? delta::Format::kInt8 : delta::Format::kInt4;
    delta.base_name = config.update_base;
    if (delta.base_name.empty())
        delta.base_name = prepared.directory.adapters ? prepared.adapter_sha256 : prepared.base_sha256;
    if (!config.rounding_error_from.empty()) delta.error_from = rounding_error_file(config.rounding_error_from);
    delta.error_if_named = config.rounding_error_if_named;
    delta.error_out = rounding_error_file(config.out);
    delta.error_name = config.rounding_error_name;
    return delta;
}

model_io::SaveWhere save_where(const PreparedRun& prepared) {
    const RunConfig& config = prepared.config;
    return {config.model,
            config.out,
            config.save_dtype ? std::optional(weights::file_dtype(weights::storage_dtype(*config.save_dtype)))
                              : std::nullopt,
            prepared.directory.adapters ? &prepared.directory.adapters->options : nullptr,
            {config.model, std::string(to_string(config.quantize)), prepared.base_sha256},
            config.adapter,
            save_delta(prepared)};
}

// The same on every rank: rank 0's.
fs::path broadcast_path(comm::Comm& comm, const fs::path& path) {
    constexpr std::size_t kBytes = 4096;
    std::string text = path.string();
    text.resize(kBytes);
    comm.broadcast(std::as_writable_bytes(std::span(text)), 0);
    return {text.c_str()};
}

// Where a state may go instead, the nearest first: values for --out. Each name is new.
std::vector<fs::path> other_places(const fs::path& out, const std::optional<fs::path>& state_directory) {
    constexpr int kNameBytes = 3;
    std::error_code error;
    const char* const temporary = std::getenv("TMPDIR");
    std::vector<fs::path> parents;
    if (state_directory) parents.push_back(state_directory->parent_path());  // its own, whatever it is called now
    parents.push_back(fs::absolute(checkpoint::checkpoint_file(out).parent_path(), error).parent_path());
    parents.push_back(fs::current_path(error));
    const char* const only_beside = std::getenv("ATOLL_STATE_BESIDE_OUT");
    if (only_beside == nullptr || *only_beside == '\0')
        parents.emplace_back(temporary != nullptr && *temporary != '\0' ? temporary : "/tmp");
    std::vector<fs::path> places;
    for (const fs::path& parent : parents) {
        if (parent.empty() || !fs::is_directory(parent, error)) continue;
        const bool is_known =
            std::ranges::any_of(places, [&](const fs::path& one) { return one.parent_path() == parent; });
        if (!is_known) places.push_back(parent / (run_name(out) + "-saved-" + random_hex(kNameBytes)));
    }
    return places;
}

}  // namespace

RunOutput::RunOutput(const PreparedRun& prepared, std::string fingerprint, parallel::RunMemory& memory,
                     kernels::Backend& backend, comm::Comm& comm)
    : prepared_(prepared), fingerprint_(std::move(fingerprint)), memory_(memory), backend_(backend), comm_(comm) {}

fs::path RunOutput::state_directory() const {
    return checkpoint::checkpoint_file(prepared_.config.out).parent_path();
}

Status RunOutput::open() {
    ATOLL_TRY(saver_, model_io::WeightSaver::create(prepared_.directory.model, comm_, save_where(prepared_)));
    begins_without_error_ = saver_->begins_without_error();
    ATOLL_RETURN_IF_ERROR(comm_.agree(comm_.rank() == 0 ? take_output() : Status()));
    return checkpoint::check_directory_is_shared(prepared_.config.out, comm_);
}

Status RunOutput::take_output() {
    ATOLL_RETURN_IF_ERROR(check_train_output(prepared_.config));  // again: the saver keeps others away only now
    ATOLL_TRY(auto directory, checkpoint::StateDirectory::open(prepared_.config.out));
    state_directory_.emplace(std::move(directory));
    return {};
}

Status RunOutput::prepare_async() {
    if (prepared_.config.save_async != run_settings::OnOff::kOn) return {};
    ATOLL_TRY(async_saver_, checkpoint::AsyncSaver::create(checkpoint::checkpoint_file(prepared_.config.out),
                                                           memory_.store(), backend_, comm_, fingerprint_));
    return {};
}

Result<std::optional<RunOutput::TrainerState>> RunOutput::load_state() {
    ATOLL_TRY(auto found,
              checkpoint::load_checkpoint(checkpoint::checkpoint_file(prepared_.config.out), memory_.store(), backend_,
                                          comm_, fingerprint_, prepared_.config.deterministic));
    if (!found) return found;
    saved_steps_ = found->steps;
    std::byte has_best{comm_.rank() == 0 && holds_best(prepared_.config)};
    comm_.broadcast(std::span(&has_best, 1), 0);
    if (has_best == std::byte{0}) found->best_step = 0;
    if (comm_.rank() == 0) spdlog::info("--resume: goes on after step {} of {}", found->steps, prepared_.steps);
    return found;
}

Result<std::int64_t> RunOutput::load_optimizer() {
    const RunConfig& config = prepared_.config;
    auto updates =
        checkpoint::load_optimizer(checkpoint::optimizer_file(config.optimizer_from), memory_.store(), backend_, comm_,
                                   optimizer_fingerprint(prepared_), config.optimizer_if_named);
    if (updates.ok() || config.optimizer_if_named.empty() || is_transient(updates.error().code)) return updates;
    const Error& error = updates.error();
    if (!error.message.empty()) {  // on the rank that tells
        const bool names_file = error.message.find(error.field) != std::string::npos;
        log::warn("the optimizer starts with moments of zero: " + (names_file ? "" : error.field + ": ") +
                  error.message);
    }
    memory_.store().clear_moments(backend_);  // some of its values may be there
    return std::int64_t{0};
}

// A state is replaced by one that is written beside it, and the result is written beside the last one.
Status RunOutput::check_room(std::int64_t steps_done) {
    const RunConfig& config = prepared_.config;
    const bool keeps = config.keep_optimizer;
    std::array sums = {static_cast<double>(memory_.store().own_state_bytes()),
                       static_cast<double>(keeps ? checkpoint::own_optimizer_bytes(memory_.store()) : 0)};
    comm_.all_reduce(sums, comm::Reduction::kSum);
    if (comm_.rank() != 0) return comm_.agree({});
    const double state = sums[0];
    const auto there = static_cast<double>(checkpoint::bytes_on_disk(config.out));  // goes on with it, or removes it
    double result = static_cast<double>(saver_->bytes()) + sums[1];
    if (config.control_variate > 0)
        result += static_cast<double>(model_io::control_variate_bytes(prepared_.directory.model));
    if (config.save_best) result += 2 * static_cast<double>(saver_->bytes());  // the next one beside the last
    std::int64_t saves =
        prepared_.times(config.save_every, prepared_.steps - 1) - prepared_.times(config.save_every, steps_done);
    if (config.save_interval > 0) saves = std::max(saves, std::min<std::int64_t>(2, prepared_.steps - 1 - steps_done));
    const double last = saves > 0 ? state : saved_steps_ ? there : 0;
    const double two = saves > (saved_steps_ ? 0 : 1) ? 2 * state : 0;
    const Status status =
        weights::check_room(config.out, std::max(last + result, two) - there,
                            saves > 0 ? "the run's result and its states need" : "the run's result needs");
    return comm_.agree(parallel::write_outcome(status));
}

Status RunOutput::take_over() {
    return comm_.agree(comm_.rank() == 0 ? remove_old() : Status());
}

// A run that begins anew takes the place of one that stopped, whose state would go on with its own settings.
Status RunOutput::remove_old() const {
    const fs::path out = prepared_.config.out, ended = exit_file(out);
    const auto text = read_file(ended);
    std::error_code error;
    if (text.ok() && is_exit_json_of(*text, run_name(out))) fs::remove(ended, error);
    if (error) return internal_error("cannot remove " + ended.string() + ": " + error.message());
    return prepared_.config.resume ? Status() : state_directory_->remove_state();
}

// OUT.state may have been removed or renamed since.
Status RunOutput::ready_place() {
    return comm_.agree(comm_.rank() == 0 ? parallel::write_outcome(state_directory_->restore()) : Status());
}

Status RunOutput::write_state(const fs::path& out, const TrainerState& state) {
    const double began = clock_s();
    Status written = checkpoint::save_checkpoint(checkpoint::checkpoint_file(out), memory_.store(), backend_, comm_,
                                                 state, fingerprint_);
    save_s_ = clock_s() - began;
    return written;
}

RunOutput::Saved RunOutput::try_save(const TrainerState& state) {
    const trace::Span span("save");
    wait_for_save();
    Status written = ready_place();
    if (written.ok()) written = write_state(prepared_.config.out, state);
    if (written.ok()) saved_steps_ = state.steps;
    if (written.ok() || is_of_values(written)) return {written, std::nullopt};
    return {written, save_elsewhere(state)};
}

Status RunOutput::save(const TrainerState& state) {
    const Saved saved = try_save(state);
    if (saved.status.ok()) return {};
    if (!saved.elsewhere) return with_words(saved.status, loss_without_state(saved.status));
    return with_words(saved.status, "the state of step " + std::to_string(state.steps) + " is in " +
                                        checkpoint::checkpoint_file(*saved.elsewhere).parent_path().string() +
                                        ": the same command with --resume --out " + saved.elsewhere->string() +
                                        " goes on");
}

std::optional<fs::path> RunOutput::save_elsewhere(const TrainerState& state) {
    auto bytes = static_cast<double>(memory_.store().own_state_bytes());
    comm_.all_reduce(std::span(&bytes, 1), comm::Reduction::kSum);
    std::vector<fs::path> places;
    if (comm_.rank() == 0) places = other_places(prepared_.config.out, state_directory_->current_path());
    for (std::size_t i = 0;; ++i) {
        const fs::path out = broadcast_path(comm_, i < places.size() ? places[i] : fs::path());
        if (out.empty()) return std::nullopt;
        if (save_to(out, bytes, state).ok()) return out;
    }
}

Status RunOutput::save_to(const fs::path& out, double bytes, const TrainerState& state) {
    std::optional<checkpoint::StateDirectory> directory;  // on rank 0
    const auto open = [&]() -> Status {
        ATOLL_RETURN_IF_ERROR(weights::check_room(out.parent_path(), bytes, "the state needs"));
        ATOLL_TRY(auto opened, checkpoint::StateDirectory::open(out));
        directory.emplace(std::move(opened));
        return {};
    };
    ATOLL_RETURN_IF_ERROR(comm_.agree(comm_.rank() == 0 ? open() : Status()));
    ATOLL_RETURN_IF_ERROR(checkpoint::check_directory_is_shared(out, comm_));
    return write_state(out, state);
}

Status RunOutput::begin_save(const TrainerState& state) {
    const trace::Span span("begin to save");
    Status ready = end_save(true);
    if (ready.ok()) ready = ready_place();
    if (ready.ok()) ready = async_saver_->begin(state);
    if (!ready.ok()) return save(state);
    saving_steps_ = state.steps;
    return {};
}

Status RunOutput::progress() {
    return end_save(false);
}

Status RunOutput::end_save(bool waits) {
    if (!saving_steps_) return {};
    const trace::Span span("end of saving");
    Status saved = waits ? async_saver_->wait() : async_saver_->progress();
    if (async_saver_->is_saving()) return {};
    save_s_ = async_saver_->took_s();
    if (saved.ok()) saved_steps_ = saving_steps_;
    saving_steps_.reset();
    return saved;
}

void RunOutput::wait_for_save() {
    const Status saved = end_save(true);
    if (!saved.ok() && !saved.error().message.empty()) log::warn(saved.error().message);
}

std::string RunOutput::loss_without_state(const Status& failed) const {
    if (is_of_values(failed)) {
        return "no run can go on from such values: begin anew with --overwrite and a smaller lr or max_grad_norm, or "
               "more warmup_steps";
    }
    if (!saved_steps_) return "what was trained is lost: begin anew once a state can be written there";
    return "what was trained since the last state, of step " + std::to_string(*saved_steps_) +
           ", is lost: once a state can be written there, the same command with --resume goes on from that";
}

Status RunOutput::save_best() {
    const trace::Span span("save the best model");
    return saver_->save_copy(best_directory(prepared_.config.out), memory_.store(), backend_, comm_);
}

// The record goes first, so that no end of the process leaves a result without it. Beside a result that is still to be
// replaced it would tell of that one.
Status RunOutput::save_result(const TrainerState& state) {
    const trace::Span span("save the model");
    ATOLL_RETURN_IF_ERROR(ready_place());
    if (prepared_.config.keep_optimizer) {
        ATOLL_RETURN_IF_ERROR(checkpoint::save_optimizer(
            checkpoint::optimizer_file(prepared_.config.out), memory_.store(), backend_, comm_, state,
            optimizer_fingerprint(prepared_), prepared_.config.optimizer_name));
    }
    const bool is_first = comm_.rank() == 0 && !holds_result(prepared_.config);
    const auto record = [&] {
        return state_directory_->write_finished(result_fingerprint(fingerprint_, prepared_.config));
    };
    ATOLL_RETURN_IF_ERROR(comm_.agree(parallel::write_outcome(is_first ? record() : Status())));
    Status saved = add_token_counts();
    if (saved.ok()) saved = add_control_variate(state);
    if (saved.ok()) saved = saver_->save(memory_.store(), backend_, comm_);
    saver_.reset();
    return saved;
}

Status RunOutput::add_token_counts() {
    if (!prepared_.config.token_counts) return {};
    ATOLL_TRY(const std::string bytes, make_token_counts(prepared_, comm_));
    return saver_->add_file(model_config::kTokenCountsFile, bytes, comm_);
}

// The mean is over the steps that were not skipped.
Status RunOutput::add_control_variate(const TrainerState& state) {
    const RunConfig& config = prepared_.config;
    if (config.control_variate == 0) return {};
    const model_io::SaveControlVariate save = {
        .files = {.file = saver_->staged() / delta::kControlVariateFile,
                  .kept = checkpoint::control_variate_file(config.out),
                  .base_name = config.update_base.empty() ? prepared_.base_sha256 : config.update_base,
                  .name = config.control_variate_name},
        .steps = static_cast<double>(state.steps - state.skipped_steps)};
    return model_io::save_control_variate(save, memory_.store(), backend_, comm_);
}

RunOutput::Kept RunOutput::keep_unsaved(const Status& failed, const TrainerState& state) {
    saver_.reset();
    const Saved kept = try_save(state);
    if (kept.elsewhere) {
        const std::string words = "the training is done and its state saved in " +
                                  checkpoint::checkpoint_file(*kept.elsewhere).parent_path().string() +
                                  ": the same command with --resume --out " + kept.elsewhere->string() +
                                  " saves the model";
        return {with_words(failed, words), false, true};
    }
    if (!kept.status.ok()) {
        return {with_words(failed, "its state could not be saved either: " + loss_without_state(kept.status)), false,
                is_of_values(kept.status)};
    }
    const std::string way_on = is_of_values(failed)
                                   ? "--resume with --save-dtype bf16 or fp32 saves the model; without that it would "
                                     "fail again"
                                   : "the same command with --resume saves the model";
    return {with_words(failed, "the training is done and its state saved: " + way_on), true, true};
}

Status RunOutput::record(const Summary& summary, bool is_stopped) {
    saver_.reset();
    Status recorded;
    if (comm_.rank() == 0) {
        const std::string& out = prepared_.config.out;
        recorded = is_stopped ? write_file_atomic(exit_file(out), to_exit_json(summary, run_name(out)) + "\n")
                              : state_directory_->finish(result_fingerprint(fingerprint_, prepared_.config));
    }
    return comm_.agree(parallel::write_outcome(recorded));
}

}  // namespace atl::train
