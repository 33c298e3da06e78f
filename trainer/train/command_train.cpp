#include "trainer/comm/launch.h"
#include "trainer/plan/node.h"
#include "trainer/train/commands.h"
#include "trainer/train/fit.h"
#include "trainer/train/trainer.h"

namespace atl::train {
namespace {

class TrainCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return flags_.flags(); }

    Status run() override {
        const StopRequest stop;
        ATOLL_TRY(const auto comm, comm::open_world());
        ATOLL_RETURN_IF_ERROR(comm->agree(read_flags()));
        ATOLL_TRY(TrainJob job, prepare_training(config_, *comm, rank_counts(*comm)));
        ATOLL_TRY(const auto backend, open_backend(config_, *comm));
        // Before memory is judged: it makes the buffers that products need.
        const double peak = config_.peak_tflops > 0 ? config_.peak_tflops * 1e12 : measure_peak_flops(*backend);
        ATOLL_RETURN_IF_ERROR(check_fits(job, *backend, *comm));
        auto memory = RunMemory::allocate(*backend, job.directory.model, layout_of(job, comm->rank(), comm->size()));
        ATOLL_RETURN_IF_ERROR(comm->agree(memory.ok() ? Status() : Status(memory.error())));
        return Trainer(job, **memory, *backend, *comm, stop, peak).run();
    }

  private:
    Status read_flags() {
        ATOLL_RETURN_IF_ERROR(flags_.apply());
        if (config_.out.empty()) return invalid_argument("--out", "is required");
        return settle_offload_dir(config_);
    }

    RunConfig config_;
    ConfigFlags flags_{config_, kTrain};
};

}  // namespace

std::unique_ptr<Command> make_train_command() {
    return std::make_unique<TrainCommand>();
}

}  // namespace atl::train
