#include <array>

#include "trainer/train/base_digest.h"
#include "trainer/train/commands.h"
#include "trainer/train/input_paths.h"
#include "trainer/train/output.h"
#include "trainer/train/storage.h"
#include "trainer/train/warn.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/merge.h"
#include "trainer/weights/save.h"

namespace atl::train {
namespace {

class MergeCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {{"model", "model directory that the adapter was trained on", &options_.model, true},
                {"adapter", "adapter directory (PEFT)", &options_.adapter, true},
                {"out", "model directory to make", &options_.out, true},
                {"overwrite", "replace a model that is in --out", &overwrite_},
                {"save-dtype", "fp32|fp16|bf16; the default is the model's",
                 Flag::Assign([this](std::string_view text) -> Status {
                     ATOLL_TRY(options_.dtype, weights::parse_float_dtype(text));
                     return {};
                 })},
                {"quantize", "merge into what this format makes of the model's weights, as they were in training",
                 &quantize_}};
    }

    Status run() override {
        ATOLL_RETURN_IF_ERROR(check_model_path(options_.model, "--model"));
        ATOLL_RETURN_IF_ERROR(check_adapter_path(options_.adapter, "--adapter"));
        const std::array<std::filesystem::path, 2> reads = {options_.model, options_.adapter};
        ATOLL_RETURN_IF_ERROR(check_output(OutputKind::kModel, options_.out, reads, overwrite_));
        ATOLL_TRY(const weights::AdapterBase base, weights::load_adapter_base(options_.adapter));
        const std::string trained_on = weights::other_format(base, quantize_);
        const auto format = parse_quantize(quantize_);
        if (quantize_ != "none" && !format) {
            return invalid_argument("--quantize", "'" + quantize_ + "' is none of none, int8, nf4");
        }
        if (format && !trained_on.empty() && trained_on != weights::kNotQuantized) {
            return invalid_argument("--quantize", "the adapter was trained on the model in " + trained_on +
                                                      ", not in " + quantize_ + ": give that one, or none");
        }
        ATOLL_TRY(ModelDirectory directory, open_both());
        ATOLL_RETURN_IF_ERROR(tell_other_weights(directory, base, *comm::make_self(), false));
        if (format) model::quantize_layers(directory.model, *format);
        ATOLL_RETURN_IF_ERROR(weights::merge_adapter(options_, directory.model));
        say_what_was_merged(trained_on);
        return {};
    }

  private:
    // As every command opens a model with an adapter.
    Result<ModelDirectory> open_both() const {
        RunConfig config;
        config.adapter = options_.adapter;
        ATOLL_TRY(ModelDirectory directory, open_model(options_.model));
        ATOLL_RETURN_IF_ERROR(check_tied_head(directory, *comm::make_self(), false));
        ATOLL_TRY(auto adapters, adapters_of(config));
        ATOLL_RETURN_IF_ERROR(add_adapters(directory, std::move(*adapters)));
        return directory;
    }

    void say_what_was_merged(const std::string& trained_on) const {
        if (quantize_ != "none") {
            warn("merged into what " + quantize_ + " makes of the model's weights" +
                 (trained_on.empty() ? ""
                                     : "; the adapter was trained on the model's own weights, which differ a little: "
                                       "--quantize none merges into those"));
        } else if (!trained_on.empty()) {
            warn("merged into the model's own weights; the adapter was trained on the model in " + trained_on +
                 ", whose weights differ a little: --quantize " + trained_on + " merges into those");
        }
    }

    weights::MergeOptions options_;
    std::string quantize_ = "none";
    bool overwrite_ = false;
};

}  // namespace

std::unique_ptr<Command> make_merge_command() {
    return std::make_unique<MergeCommand>();
}

}  // namespace atl::train
