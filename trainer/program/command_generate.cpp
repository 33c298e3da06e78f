#include "shared/host/node.h"
#include "trainer/comm/launch.h"
#include "trainer/model/generate.h"
#include "trainer/model_io/weights_io.h"
#include "trainer/parallel/gathered_weight_source.h"
#include "trainer/parallel/process_groups.h"
#include "trainer/program/commands.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/train/backend.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/memory_check.h"

namespace atl::program {
namespace {

// Every rank computes the whole text, from weights that it keeps or gathers; rank 0 prints it.
class GenerateCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return flags_.flags(); }

    Status run() override {
        const Status read = read_flags();
        ATOLL_TRY(const auto comm, comm::open_world(config_.collective_timeout));
        ATOLL_RETURN_IF_ERROR(comm->agree(read));
        ATOLL_TRY(model_io::ModelDirectory directory, train::open_model_to_read(config_, *comm));
        ATOLL_RETURN_IF_ERROR(train::compare_with_adapters(directory, config_, *comm));
        ATOLL_TRY(directory.model.config.eos_token_ids,
                  comm::agreed(*comm, model_config::load_eos_token_ids(config_.model, directory.model.config)));
        ATOLL_TRY(const auto tokenizer, comm::agreed(*comm, tokenizer::Tokenizer::open(config_.model)));
        ATOLL_TRY(const std::vector<std::int32_t> prompt,
                  comm::agreed(*comm, tokenizer->encode_prompt(config_.prompt)));
        ATOLL_RETURN_IF_ERROR(comm->agree(model::check_prompt(directory.model.config, prompt, options_)));
        ATOLL_TRY(const auto backend, train::open_backend(config_, *comm));
        ATOLL_TRY(const parallel::ParallelLayout layout, comm::agreed(*comm, train::choose_layout(config_, *comm)));
        parallel::ProcessGroups ranks(*comm, layout, *backend);
        const auto need_bytes = [&](std::int64_t) {
            const auto tokens = std::ssize(prompt);
            plan::Bytes need =
                parallel::GatheredWeightSource::need_bytes(*backend, directory.model, layout, ranks.shard_group());
            need.host += host::resident_bytes();
            need.device +=
                model::Generation::need_bytes(directory.model, *backend, tokens, tokens + options_.tokens_max);
            return need.on(backend->host_reaches_device());
        };
        ATOLL_RETURN_IF_ERROR(train::check_fits(*backend, 1, need_bytes, *comm));
        ATOLL_TRY(const auto weights, comm::agreed(*comm, parallel::GatheredWeightSource::allocate(
                                                              *backend, directory.model, layout, ranks.shard_group())));
        ATOLL_RETURN_IF_ERROR(
            model_io::load_weights(directory, weights->store(), *backend, *comm, config_.broadcast_from_rank0));
        return print_continuation(directory.model, *backend, *weights, *tokenizer, prompt, *comm);
    }

  private:
    Status read_flags() {
        ATOLL_RETURN_IF_ERROR(flags_.apply());
        if (!config_.given.contains("prompt")) return invalid_argument("--prompt", "is required");
        options_.tokens_max = config_.max_tokens;
        options_.temperature = config_.temperature;
        options_.top_p = config_.top_p;
        options_.seed = static_cast<std::uint64_t>(config_.seed);
        return {};
    }

    Status print_continuation(const model::Model& model, kernels::Backend& backend, model::WeightSource& weights,
                              const tokenizer::Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt,
                              comm::Comm& comm) {
        std::vector<std::int32_t> ids;
        // Ranks on different kinds of CPU may differ in the last bit, and must not part over it.
        options_.agree_on_token = [&](std::int32_t token) {
            comm.broadcast(std::as_writable_bytes(std::span(&token, 1)), 0);
            return token;
        };
        const auto keep = [&](std::int32_t token) {
            ids.push_back(token);
            return true;
        };
        ATOLL_RETURN_IF_ERROR(comm.agree(model::generate(model, backend, weights, prompt, options_, keep)));
        if (comm.rank() == 0) train::print_line(tokenizer.decode(ids));
        return {};
    }

    run_settings::RunConfig config_;
    ConfigFlags flags_{config_, run_settings::kGenerate};
    model::GenerateOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
    return std::make_unique<GenerateCommand>();
}

}  // namespace atl::program
