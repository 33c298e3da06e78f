#include <array>
#include <filesystem>

#include "shared/run_settings/run_settings.h"
#include "trainer/program/commands.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/output.h"
#include "trainer/weights/init.h"
#include "trainer/weights/storage.h"

namespace atl::program {
namespace {

class InitCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {{"config", "config.json of the model", &options_.config, true},
                {"tokenizer", "directory whose tokenizer files are copied", &options_.tokenizer},
                {"out", "model directory to make", &options_.out, true},
                {.name = "seed",
                 .help = "of the random weights; the default is 0",
                 .target = Flag::Assign([this](std::string_view text) {
                     return run_settings::assign(as_training_, *run_settings::find_option("seed", run_settings::kTrain),
                                                 text);
                 }),
                 .kind = "INT"},
                {"overwrite", "replace a model that is in --out", &overwrite_},
                {"dtype", "fp32|fp16|bf16; the default is config.json's",
                 Flag::Assign([this](std::string_view text) -> Status {
                     ATOLL_TRY(options_.dtype, weights::parse_file_dtype(text));
                     return {};
                 })}};
    }

    Status run() override {
        const std::array<std::filesystem::path, 2> reads = {options_.config, options_.tokenizer};
        ATOLL_RETURN_IF_ERROR(train::check_output(train::OutputKind::kModel, options_.out, reads, overwrite_));
        options_.seed = static_cast<std::uint64_t>(as_training_.seed);
        ATOLL_TRY(const weights::ModelSize size, weights::init_model(options_));
        train::print_line(weights::to_json_line(size));
        train::warn_of_missing_tokenizer(options_.out);
        return {};
    }

  private:
    weights::InitOptions options_;
    run_settings::RunConfig as_training_;  // the seed
    bool overwrite_ = false;
};

}  // namespace

std::unique_ptr<Command> make_init_command() {
    return std::make_unique<InitCommand>();
}

}  // namespace atl::program
