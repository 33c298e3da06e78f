#include "trainer/comm/launch.h"
#include "trainer/train/base_digest.h"
#include "trainer/train/commands.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/fit.h"
#include "trainer/train/identity.h"

namespace atl::train {
namespace {

class EvalCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return flags_.flags(); }

    Status run() override {
        ATOLL_TRY(const auto comm, comm::open_world());
        ATOLL_RETURN_IF_ERROR(comm->agree(flags_.apply()));
        ATOLL_TRY(ModelDirectory directory, open_model(config_, *comm));
        if (directory.adapters)
            ATOLL_RETURN_IF_ERROR(
                tell_other_weights(directory, directory.adapters->trained_on, *comm, config_.broadcast_from_rank0));
        ATOLL_RETURN_IF_ERROR(set_precision(directory.model, config_));
        ATOLL_TRY(const CheckedData data, open_data(evaluation_data(), directory, *comm));
        ATOLL_RETURN_IF_ERROR(data_fingerprint(data.dataset, *comm));  // that these are the rows of data.json
        ATOLL_TRY(const auto backend, open_backend(config_, *comm));
        ATOLL_TRY(const auto memory, prepare(directory, data, *backend, *comm));
        RankGroups ranks(*comm, memory->store().division());
        const Perplexity perplexity = evaluate(*memory, *backend, ranks, data, micro(data));
        if (comm->rank() == 0) print_line(to_json_line(perplexity));
        return {};
    }

  private:
    std::int64_t micro(const CheckedData& data) const {
        if (config_.deterministic) return 1;
        return std::min(config_.batch_size > 0 ? config_.batch_size : 8, data.rows);
    }

    DataChoice evaluation_data() const {
        return {.path = config_.data,
                .flag = "--data",
                .samples_max = config_.val_samples,
                .join_documents = config_.cross_document_attention == "on"};
    }

    Result<std::unique_ptr<RunMemory>> prepare(const ModelDirectory& directory, const CheckedData& data,
                                               kernels::Backend& backend, comm::Comm& comm) {
        ATOLL_RETURN_IF_ERROR(comm.agree(check_micro_step(micro(data), data.dataset.seq_len())));
        LayoutOptions options;
        options.engine.largest = {micro(data), data.dataset.seq_len()};
        options.engine.train = false;
        ATOLL_TRY(options.division, comm::agreed(comm, division_of(config_, comm)));
        const auto need_bytes = [&](std::int64_t rows) {
            LayoutOptions smaller = options;
            smaller.engine.largest.batch = rows;
            return RunMemory::measure(backend, directory.model, smaller).total_bytes();
        };
        ATOLL_RETURN_IF_ERROR(check_fits(micro(data), need_bytes, comm));
        ATOLL_TRY(auto memory, comm::agreed(comm, RunMemory::allocate(backend, directory.model, options)));
        const auto load = config_.broadcast_from_rank0 ? load_weights_from_rank0 : load_weights;
        ATOLL_RETURN_IF_ERROR(load(directory, memory->store(), backend, comm));
        return memory;
    }

    RunConfig config_;
    ConfigFlags flags_{config_, kEval};
};

}  // namespace

std::unique_ptr<Command> make_eval_command() {
    return std::make_unique<EvalCommand>();
}

}  // namespace atl::train
