#include <array>

#include "shared/log/warn.h"
#include "trainer/program/commands.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/output.h"
#include "trainer/train/prepare.h"
#include "trainer/weights/merge.h"
#include "trainer/weights/storage.h"

namespace atl::program {
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
                     ATOLL_TRY(options_.dtype, weights::parse_file_dtype(text));
                     return {};
                 })},
                {.name = "quantize",
                 .help = "merge into what this format makes of the model's weights, as they were in training",
                 .target = Flag::Assign([this](std::string_view text) -> Status {
                     ATOLL_RETURN_IF_ERROR(run_settings::assign(
                         as_training_, *run_settings::find_option("quantize", run_settings::kTrain), text));
                     quantize_ = text;
                     return {};
                 }),
                 .fallback = quantize_}};
    }

    Status run() override {
        const std::array<std::filesystem::path, 2> reads = {options_.model, options_.adapter};
        ATOLL_RETURN_IF_ERROR(train::check_output(train::OutputKind::kModel, options_.out, reads, overwrite_));
        as_training_.model = options_.model;
        as_training_.adapter = options_.adapter;
        const auto alone = comm::make_self();
        ATOLL_TRY(const model_io::ModelDirectory directory, train::open_model(as_training_, *alone));
        const weights::AdapterBase& base = directory.adapters->trained_on;
        const std::string trained_on = weights::other_format(base, quantize_);
        if (quantize_ != weights::kNotQuantized && !trained_on.empty() && trained_on != weights::kNotQuantized) {
            return invalid_argument("--quantize", "the adapter was trained on the model in " + trained_on +
                                                      ", not in " + quantize_ + ": give that one, or none");
        }
        ATOLL_RETURN_IF_ERROR(model_io::warn_of_other_weights(directory, base, *alone, false));
        ATOLL_TRY(const weights::ModelSize size, weights::merge_adapter(options_, directory.model));
        train::print_line(weights::to_json_line(size));
        say_what_was_merged(trained_on);
        return {};
    }

  private:
    void say_what_was_merged(const std::string& trained_on) const {
        if (quantize_ != "none") {
            log::warn("merged into what " + quantize_ + " makes of the model's weights" +
                      (trained_on.empty()
                           ? ""
                           : "; the adapter was trained on the model's own weights, which differ a little: "
                             "--quantize none merges into those"));
        } else if (!trained_on.empty()) {
            log::warn("merged into the model's own weights; the adapter was trained on the model in " + trained_on +
                      ", whose weights differ a little: --quantize " + trained_on + " merges into those");
        }
    }

    weights::MergeOptions options_;
    run_settings::RunConfig as_training_;
    std::string quantize_ = "none";
    bool overwrite_ = false;
};

}  // namespace

std::unique_ptr<Command> make_merge_command() {
    return std::make_unique<MergeCommand>();
}

}  // namespace atl::program
