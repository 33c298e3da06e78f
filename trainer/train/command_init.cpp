#include <filesystem>

#include "trainer/checkpoint/init.h"
#include "trainer/checkpoint/save.h"
#include "trainer/train/commands.h"

namespace atl::train {
namespace {

// Weights take hours to make: none are written over by mistake.
Status check_no_model(const std::filesystem::path& directory) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(directory, none))
        if (entry.path().extension() == ".safetensors")
            return invalid_argument("--out", directory.string() + " holds a model already (" +
                                                 entry.path().filename().string() + "); --force writes over it");
    return {};
}

class InitCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {{"config", "config.json of the model", &options_.config, true},
                {"tokenizer", "directory whose tokenizer files are copied", &options_.tokenizer},
                {"out", "model directory to make", &options_.out, true},
                {"seed", "of the random weights; the default is 0", &seed_},
                {"force", "write over a model that is in --out", &force_},
                {"dtype", "fp32|fp16|bf16; the default is config.json's",
                 Flag::Assign([this](std::string_view text) -> Status {
                     ATOLL_TRY(options_.dtype, checkpoint::parse_float_dtype(text));
                     return {};
                 })}};
    }

    Status run() override {
        if (!force_) ATOLL_RETURN_IF_ERROR(check_no_model(options_.out));
        options_.seed = static_cast<std::uint64_t>(seed_);
        return checkpoint::init_model(options_);
    }

  private:
    checkpoint::InitOptions options_;
    std::int64_t seed_ = 0;
    bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> make_init_command() {
    return std::make_unique<InitCommand>();
}

}  // namespace atl::train
