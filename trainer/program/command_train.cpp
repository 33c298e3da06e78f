#include <cstdlib>
#include <span>
#include <utility>

#include "shared/host/node.h"
#include "shared/log/log.h"
#include "shared/log/warn.h"
#include "trainer/comm/launch.h"
#include "trainer/model_io/model_directory.h"
#include "trainer/program/commands.h"
#include "trainer/train/backend.h"
#include "trainer/train/exchange.h"
#include "trainer/train/memory_check.h"
#include "trainer/train/output.h"
#include "trainer/train/run_fingerprint.h"
#include "trainer/train/trainer.h"

namespace atl::program {
namespace {

class TrainCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return flags_.flags(); }

    Status run() override {
        train::StopRequest stop;
        const Status read = read_flags();
        ATOLL_TRY(const auto comm, comm::open_world(config_.collective_timeout));
        if (const char* file = std::getenv("ATOLL_STOP_FILE"); file && comm->rank() == 0) stop.watch(file);
        ATOLL_RETURN_IF_ERROR(comm->agree(read));
        ATOLL_RETURN_IF_ERROR(comm->agree(comm::check_asked_ranks(comm->size(), comm::process_environment)));
        ATOLL_TRY(const train::TrainOutput found, find_output(*comm));
        ATOLL_TRY(train::PreparedRun prepared, train::prepare_training(config_, *comm, train::rank_counts(*comm)));
        if (found == train::TrainOutput::kFinished) {
            ATOLL_TRY(const std::string fingerprint, read_inputs(prepared, *comm));
            return comm->agree(comm->rank() == 0 ? check_finished(fingerprint) : Status());
        }
        ATOLL_TRY(const auto backend, train::open_backend(config_, *comm));
        ATOLL_TRY(prepared.exchange, train::open_exchange(config_, *backend, *comm));
        const double peak = peak_flops(*backend, prepared.directory.model.formats.activations);
        ATOLL_RETURN_IF_ERROR(train::check_fits(prepared, *backend, *comm));
        auto memory = parallel::RunMemory::allocate(*backend, prepared.directory.model,
                                                    train::run_memory_options(prepared, comm->rank(), comm->size()));
        ATOLL_RETURN_IF_ERROR(comm->agree(memory.ok() ? Status() : Status(memory.error())));
        ATOLL_TRY(const std::string fingerprint, read_inputs(prepared, *comm));  // long: once there is memory for it
        return train::Trainer(prepared, fingerprint, **memory, *backend, *comm, stop, peak).run();
    }

  private:
    Status read_flags() {
        ATOLL_RETURN_IF_ERROR(flags_.apply());
        if (config_.out.empty()) return invalid_argument("--out", "is required");
        return train::settle_offload_dir(config_);
    }

    // Before memory is judged: what the products leave behind counts.
    double peak_flops(kernels::Backend& backend, tensor::DType format) const {
        if (config_.peak_tflops == 0) return train::measure_peak_flops(backend, format);
        train::warm_up_products(backend, format);
        return config_.peak_tflops * 1e12;
    }

    // Rank 0 looks and tells: the others may not see its directory.
    Result<train::TrainOutput> find_output(comm::Comm& comm) const {
        auto found = comm.rank() == 0 ? train::check_train_output(config_)
                                      : Result<train::TrainOutput>(train::TrainOutput::kFree);
        ATOLL_TRY(const train::TrainOutput mine, comm::agreed(comm, std::move(found)));
        if (comm.rank() == 0 && mine == train::TrainOutput::kNoCheckpoint)
            spdlog::info("--resume: begins with step 1, as no state is saved in {}",
                         checkpoint::checkpoint_file(config_.out).parent_path().string());
        double kind = static_cast<double>(mine);
        comm.all_reduce(std::span(&kind, 1), comm::Reduction::kMax);
        return static_cast<train::TrainOutput>(kind);
    }

    // All bytes of weights and rows, for what the run is known by: its fingerprint.
    static Result<std::string> read_inputs(train::PreparedRun& prepared, comm::Comm& comm) {
        ATOLL_TRY(prepared.base_sha256,
                  model_io::base_digest(prepared.directory, comm, prepared.config.broadcast_from_rank0));
        if (prepared.directory.adapters)
            model_io::warn_of_other_weights(prepared.directory, prepared.directory.adapters->trained_on,
                                            prepared.base_sha256, comm);
        if (prepared.directory.adapters && prepared.directory.adapters->weights) {
            ATOLL_TRY(prepared.adapter_sha256,
                      model_io::adapter_digest(prepared.directory, comm, prepared.config.broadcast_from_rank0));
        }
        ATOLL_RETURN_IF_ERROR(train::read_control_variates(prepared, comm));
        ATOLL_TRY(std::string fingerprint, train::run_fingerprint(prepared, comm));
        if (prepared.validation) ATOLL_RETURN_IF_ERROR(train::data_fingerprint(prepared.validation->dataset, comm));
        return fingerprint;
    }

    // The result that is there is that of this very run.
    Status check_finished(const std::string& fingerprint) const {
        // It removes what is left of the state. While another run works there the result is about to be replaced.
        ATOLL_TRY(const auto directory, checkpoint::StateDirectory::open(config_.out));
        ATOLL_TRY(const auto record, checkpoint::read_finished(config_.out));
        const std::string differing =
            checkpoint::differences(record.value_or(""), train::result_fingerprint(fingerprint, config_));
        if (!differing.empty()) {
            return conflict("--resume: the run that made " + config_.out + " had " + differing +
                                "; it is finished: train on with its result as --model, or begin anew with --overwrite",
                            "--out");
        }
        log::warn("--resume: the run is finished already: " + config_.out +
                  " holds its result, and no state is left to go on from");
        train::print_line(R"({"summary":true,"already_finished":true,"resumable":false})");
        return {};
    }

    run_settings::RunConfig config_;
    ConfigFlags flags_{config_, run_settings::kTrain};
};

}  // namespace

std::unique_ptr<Command> make_train_command() {
    return std::make_unique<TrainCommand>();
}

}  // namespace atl::program
