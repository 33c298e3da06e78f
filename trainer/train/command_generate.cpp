#include "trainer/comm/launch.h"
#include "trainer/data/tokenizer.h"
#include "trainer/model/generate.h"
#include "trainer/train/commands.h"
#include "trainer/train/job.h"
#include "trainer/train/metrics.h"
#include "trainer/train/storage.h"

namespace atl::train {
namespace {

// All weights, whole, on this process.
class ResidentWeights final : public model::WeightSource {
  public:
    explicit ResidentWeights(const ParameterStore& store) : store_(store) {}
    Tensor weights(std::size_t group) override {
        return flat_range(store_.weights(group), 0, store_.cut(group).element_count);
    }

  private:
    const ParameterStore& store_;
};

class GenerateCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {{"model", "model directory with a tokenizer", &config_.model, true},
                {"adapter", "adapter directory (PEFT) to use with it", &config_.adapter},
                {"quantize", "none|int8|nf4: what the layers' matrices are kept in", &config_.quantize},
                {"prompt", "the text to continue", &prompt_, true},
                {"max-tokens", "tokens at most", &options_.tokens_max},
                {"temperature", "0: always the likeliest token", &options_.temperature},
                {"top-p", "draw from the likeliest tokens that together have this probability", &options_.top_p},
                {"seed", "of the draws", &seed_},
                {"threads", "the default is the cores that this process may use", &config_.threads}};
    }

    Status run() override {
        ATOLL_RETURN_IF_ERROR(check_flags());
        const auto self = comm::make_self();
        ATOLL_TRY(const ModelDirectory directory, open_model(config_, *self));
        ATOLL_TRY(const auto tokenizer, data::Tokenizer::open(config_.model));
        ATOLL_TRY(const auto backend, open_backend(config_, *self));
        auto arena = Arena::measuring();
        ParameterStore::lay_out(arena, directory.model, Division{}, nullptr);
        ATOLL_TRY(tensor::Memory memory, backend->allocate(arena.peak_bytes()));
        arena = Arena(std::move(memory));
        auto store = ParameterStore::lay_out(arena, directory.model, Division{}, nullptr);
        ATOLL_RETURN_IF_ERROR(load_weights(directory, store, *backend, *self));
        ResidentWeights weights(store);
        return print_continuation(directory.model, *backend, weights, *tokenizer);
    }

  private:
    Status check_flags() {
        if (options_.tokens_max < 1) return invalid_argument("--max-tokens", "must be at least 1");
        if (!(options_.temperature >= 0)) return invalid_argument("--temperature", "must not be negative");
        if (!(options_.top_p > 0 && options_.top_p <= 1)) return invalid_argument("--top-p", "must be in (0, 1]");
        if (config_.quantize != "none" && !parse_quantize(config_.quantize)) {
            return invalid_argument("--quantize", "'" + config_.quantize + "' is none of none, int8, nf4");
        }
        if (config_.threads < 0) return invalid_argument("--threads", "must be at least 1");
        options_.seed = static_cast<std::uint64_t>(seed_);
        return {};
    }

    // Prints what each token adds to the text as soon as it is known to be whole characters.
    Status print_continuation(const model::Model& model, kernels::Backend& backend, model::WeightSource& weights,
                              const data::Tokenizer& tokenizer) {
        const std::vector<std::int32_t> prompt = tokenizer.encode_prompt(prompt_);
        std::vector<std::int32_t> ids;
        ATOLL_RETURN_IF_ERROR(model::generate(model, backend, weights, prompt, options_, [&](std::int32_t token) {
            ids.push_back(token);
            return true;
        }));
        print_line(tokenizer.decode(ids));
        return {};
    }

    RunConfig config_;
    std::string prompt_;
    std::int64_t seed_ = 0;
    model::GenerateOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
    return std::make_unique<GenerateCommand>();
}

}  // namespace atl::train
