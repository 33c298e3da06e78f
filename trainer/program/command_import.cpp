#include <array>

#include "trainer/importer/import.h"
#include "trainer/program/commands.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/output.h"
#include "trainer/weights/storage.h"

namespace atl::program {
namespace {

class ImportCommand final : public Command {
  public:
    std::vector<Flag> flags() override {
        return {{"from",
                 "directory with config.json and pytorch_model*.bin, params.json and consolidated.*.pth, or "
                 "adapter_config.json and adapter_model.bin",
                 &options_.from, true},
                {"out", "model or adapter directory to make", &options_.out, true},
                {"overwrite", "replace a model or adapter that is in --out", &overwrite_},
                {"tokenizer", "directory whose tokenizer files are copied; the default is --from", &options_.tokenizer},
                {"dtype", "fp32|fp16|bf16; the default keeps every value's bits",
                 Flag::Assign([this](std::string_view text) -> Status {
                     ATOLL_TRY(options_.dtype, weights::parse_file_dtype(text));
                     return {};
                 })},
                {"max-position-embeddings", "the context, where Meta's params.json does not say it", &positions_},
                {"rope-factor", "how far Meta's use_scaled_rope stretches the context", &rope_factor_}};
    }

    Status run() override {
        if (positions_ < 0) return invalid_argument("--max-position-embeddings", "must be above 0");
        if (rope_factor_ != 0.0 && !(rope_factor_ >= 1.0 && rope_factor_ <= 1e6))
            return invalid_argument("--rope-factor", "must be from 1 to 1000000");
        const bool is_adapter = importer::holds_adapter(options_.from);
        const std::array<std::filesystem::path, 2> reads = {options_.from, options_.tokenizer};
        ATOLL_RETURN_IF_ERROR(train::check_output(is_adapter ? train::OutputKind::kAdapter : train::OutputKind::kModel,
                                                  options_.out, reads, overwrite_));
        if (positions_ > 0) options_.max_position_embeddings = positions_;
        if (rope_factor_ > 0.0) options_.rope_factor = rope_factor_;
        ATOLL_TRY(const weights::ModelSize size, importer::import_model(options_));
        train::print_line(weights::to_json_line(size));
        if (!is_adapter) train::warn_of_missing_tokenizer(options_.out);
        return {};
    }

  private:
    importer::ImportOptions options_;
    std::int64_t positions_ = 0;
    double rope_factor_ = 0.0;
    bool overwrite_ = false;
};

}  // namespace

std::unique_ptr<Command> make_import_command() {
    return std::make_unique<ImportCommand>();
}

}  // namespace atl::program
