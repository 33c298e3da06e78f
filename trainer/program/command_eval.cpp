#include "trainer/comm/launch.h"
#include "trainer/model_io/weights_io.h"
#include "trainer/program/commands.h"
#include "trainer/train/backend.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/exchange.h"
#include "trainer/train/memory_check.h"
#include "trainer/train/run_fingerprint.h"

namespace atl::program {
namespace {

class EvalCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return flags_.flags(); }

    Status run() override {
        const Status read = flags_.apply();
        ATOLL_TRY(const auto comm, comm::open_world(config_.collective_timeout));
        ATOLL_RETURN_IF_ERROR(comm->agree(read));
        ATOLL_TRY(model_io::ModelDirectory directory, train::open_model_to_read(config_, *comm));
        const train::DataSelection choice{config_.data, "--data", config_.val_samples, config_.loss_tokens_min};
        ATOLL_TRY(train::CheckedData data, train::open_data(config_, choice, directory, *comm));
        ATOLL_TRY(const auto backend, train::open_backend(config_, *comm));
        ATOLL_TRY(exchange_, train::open_exchange(config_, *backend, *comm));
        ATOLL_TRY(const auto memory, prepare(directory, data, *backend, *comm));
        parallel::ProcessGroups ranks(*comm, memory->store().layout(), *backend, exchange_.get());
        const train::Perplexity perplexity = train::evaluate(*memory, *backend, ranks, data, micro(data));
        ATOLL_RETURN_IF_ERROR(comm->agree(check_loss(perplexity)));
        if (comm->rank() == 0) train::print_line(train::to_json_line(perplexity));
        return {};
    }

  private:
    Status check_loss(const train::Perplexity& perplexity) const {
        if (perplexity.tokens >= config_.loss_tokens_min) return {};
        return invalid_argument("--data", "'" + config_.data + "' has " + std::to_string(perplexity.tokens) +
                                              " target tokens; the loss of fewer than " +
                                              std::to_string(config_.loss_tokens_min) +
                                              " is not told, as it would spell out the text: evaluate more text");
    }

    std::int64_t micro(const train::CheckedData& data) const {
        if (config_.deterministic) return 1;
        return std::min(config_.batch_size > 0 ? config_.batch_size : 8, data.rows);
    }

    Result<std::unique_ptr<parallel::RunMemory>> prepare(const model_io::ModelDirectory& directory,
                                                         const train::CheckedData& data, kernels::Backend& backend,
                                                         comm::Comm& comm) {
        ATOLL_RETURN_IF_ERROR(comm.agree(run_settings::check_micro_step(micro(data), data.dataset.seq_len())));
        parallel::RunMemoryOptions options;
        options.engine.largest = {micro(data), data.dataset.seq_len()};
        options.engine.train = false;
        options.library = exchange_.get();
        options.offload_params = config_.offload_params;
        ATOLL_TRY(options.layout, comm::agreed(comm, train::choose_layout(config_, comm)));
        const auto need_bytes = [&](std::int64_t rows) {
            parallel::RunMemoryOptions smaller = options;
            smaller.engine.largest.batch = rows;
            return parallel::RunMemory::measure(backend, directory.model, smaller).bytes(backend.host_reaches_device());
        };
        ATOLL_RETURN_IF_ERROR(train::check_fits(backend, micro(data), need_bytes, comm));
        ATOLL_TRY(auto memory, comm::agreed(comm, parallel::RunMemory::allocate(backend, directory.model, options)));
        ATOLL_RETURN_IF_ERROR(train::compare_with_adapters(directory, config_, comm));
        ATOLL_RETURN_IF_ERROR(train::data_fingerprint(data.dataset, comm));  // that these are the rows of data.json
        ATOLL_RETURN_IF_ERROR(
            model_io::load_weights(directory, memory->store(), backend, comm, config_.broadcast_from_rank0));
        return memory;
    }

    run_settings::RunConfig config_;
    std::shared_ptr<const parallel::ExchangeLibrary> exchange_;
    ConfigFlags flags_{config_, run_settings::kEval};
};

}  // namespace

std::unique_ptr<Command> make_eval_command() {
    return std::make_unique<EvalCommand>();
}

}  // namespace atl::program
