#include "trainer/checkpoint/merge.h"
#include "trainer/checkpoint/save.h"
#include "trainer/train/commands.h"

namespace atl::train {
namespace {

class MergeCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {{"model", "model directory that the adapter was trained on", &options_.model, true},
                {"adapter", "adapter directory (PEFT)", &options_.adapter, true},
                {"out", "model directory to make", &options_.out, true},
                {"save-dtype", "fp32|fp16|bf16; the default is the model's",
                 Flag::Assign([this](std::string_view text) -> Status {
                     ATOLL_TRY(options_.dtype, checkpoint::parse_float_dtype(text));
                     return {};
                 })}};
    }

    Status run() override { return checkpoint::merge_adapter(options_); }

  private:
    checkpoint::MergeOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_merge_command() {
    return std::make_unique<MergeCommand>();
}

}  // namespace atl::train
