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
    std::vector<Flag> flags() override {
        std::vector<Flag> flags = flags_.flags();
        flags.push_back({"prompt", "the text to continue", &prompt_, true});
        flags.push_back({"max-tokens", "tokens at most", &options_.tokens_max});
        flags.push_back({"temperature", "0, the default: always the likeliest token", &options_.temperature});
        flags.push_back(
            {"top-p", "draw from the likeliest tokens that together have this probability", &options_.top_p});
        return flags;
    }

    Status run() override {
        ATOLL_TRY(const auto comm, comm::open_world());
        ATOLL_RETURN_IF_ERROR(comm->agree(read_flags()));
        ATOLL_TRY(model_io::ModelDirectory directory, train::open_model_to_read(config_, *comm));
        ATOLL_TRY(directory.model.config.eos_token_ids,
                  comm::agreed(*comm, model::load_eos_token_ids(config_.model, directory.model.config)));
        ATOLL_TRY(const auto tokenizer, comm::agreed(*comm, tokenizer::Tokenizer::open(config_.model)));
        ATOLL_TRY(const std::vector<std::int32_t> prompt, comm::agreed(*comm, tokenizer->encode_prompt(prompt_)));
        ATOLL_RETURN_IF_ERROR(comm->agree(model::check_prompt(directory.model.config, prompt, options_)));
        ATOLL_TRY(const auto backend, train::open_backend(config_, *comm));
        ATOLL_TRY(const parallel::ParallelLayout layout, comm::agreed(*comm, train::choose_layout(config_, *comm)));
        parallel::ProcessGroups ranks(*comm, layout, *backend);
        const auto need_bytes = [&](std::int64_t) {
            const auto tokens = std::ssize(prompt);
            return parallel::GatheredWeightSource::need_bytes(*backend, directory.model, layout, ranks.shard_group()) +
                   model::Generation::need_bytes(directory.model, *backend, tokens, tokens + options_.tokens_max) +
                   host::resident_bytes();
        };
        ATOLL_RETURN_IF_ERROR(train::check_fits(1, need_bytes, *comm));
        ATOLL_TRY(const auto weights, comm::agreed(*comm, parallel::GatheredWeightSource::allocate(
                                                              *backend, directory.model, layout, ranks.shard_group())));
        ATOLL_RETURN_IF_ERROR(
            model_io::load_weights(directory, weights->store(), *backend, *comm, config_.broadcast_from_rank0));
        return print_continuation(directory.model, *backend, *weights, *tokenizer, prompt, *comm);
    }

  private:
    Status read_flags() {
        ATOLL_RETURN_IF_ERROR(flags_.apply());
        if (options_.tokens_max < 1) return invalid_argument("--max-tokens", "must be at least 1");
        if (!(options_.temperature >= 0)) return invalid_argument("--temperature", "must not be negative");
        if (!(options_.top_p > 0 && options_.top_p <= 1)) return invalid_argument("--top-p", "must be in (0, 1]");
        const bool draws = options_.temperature > 0;
        if (!draws && options_.top_p < 1) return invalid_argument("--top-p", "means nothing without --temperature");
        if (!draws && config_.given.contains("seed"))
            return invalid_argument("--seed", "means nothing without --temperature");
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
    std::string prompt_;
    model::GenerateOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
    return std::make_unique<GenerateCommand>();
}

}  // namespace atl::program
