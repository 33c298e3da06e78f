#include "trainer/weights/init.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "shared/base/file.h"
#include "shared/log/progress.h"
#include "shared/log/warn.h"
#include "trainer/model/config.h"
#include "trainer/model/initialize.h"
#include "trainer/model/model.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/weights/save.h"
#include "trainer/weights/storage.h"

namespace atl::weights {
namespace {

// Values made at a time.
constexpr std::int64_t kInitializedElements = 1 << 18;

// Rows of the embedding that stand for no token, as models have them to fill up to a round number.
std::int64_t usual_padding(std::int64_t tokens) {
    return std::max<std::int64_t>(256, tokens / 20);
}

Status check_tokenizer(const InitOptions& options, const model::ModelConfig& config) {
    if (options.tokenizer.empty()) return {};
    const auto tokenizer = tokenizer::Tokenizer::open(options.tokenizer);
    if (!tokenizer.ok()) return Error{tokenizer.error().code, tokenizer.error().message, "--tokenizer"};
    const std::int64_t tokens = (*tokenizer)->vocab_size(), rows = config.vocab_size;
    const std::string sizes = "vocab_size is " + std::to_string(rows) + ", but the tokenizer " +
                              (*tokenizer)->file().string() + " has " + std::to_string(tokens) + " tokens";
    if (tokens > rows)
        return invalid_argument("--config", options.config.string() + ": " + sizes + ": give at least that");
    if (rows - tokens > usual_padding(tokens))
        log::warn(options.config.string() + ": " + sizes +
                  ": until it is trained the model writes mostly ids without a text; set vocab_size to " +
                  std::to_string(tokens) + ", or give a tokenizer with more tokens (tokenizer-train --vocab-size " +
                  std::to_string(rows) + ")");
    return {};
}

Status write_parameter(const model::Parameter& parameter, std::uint64_t seed, WeightWriter& writer,
                       const std::function<void(std::size_t)>& on_written) {
    std::vector<float> values;
    const std::int64_t count = parameter.element_count();
    for (std::int64_t begin = 0; begin < count; begin += kInitializedElements) {
        values.resize(static_cast<std::size_t>(std::min(kInitializedElements, count - begin)));
        model::initialize(parameter, seed, begin, values);
        ATOLL_RETURN_IF_ERROR(writer.append(values));
        on_written(values.size());
    }
    return {};
}

}  // namespace

Result<ModelSize> init_model(const InitOptions& options) {
    const auto text = read_file(options.config);
    if (!text.ok()) return invalid_argument("--config", text.error().message);
    const auto config = model_config::parse_config(*text, options.config);
    if (!config.ok()) return invalid_argument("--config", config.error().message);
    ATOLL_RETURN_IF_ERROR(check_tokenizer(options, *config));
    const model::Model model = model::make_model(*config);
    const DType dtype = options.dtype.value_or(config->dtype);
    SaveOptions save;
    save.base = options.tokenizer;
    save.config = options.config;
    save.is_whole_command = true;
    ATOLL_TRY(WeightWriter writer, WeightWriter::create(options.out, tensor_specs(model, false, dtype), save));
    log::Progress progress("init");
    const auto all = static_cast<double>(model.parameter_count());
    double written = 0;
    const auto count = [&](std::size_t elements) { progress.at((written += static_cast<double>(elements)) / all); };
    for (const auto& unit : model.units)
        for (const auto& parameter : unit.parameters)
            ATOLL_RETURN_IF_ERROR(write_parameter(parameter, options.seed, writer, count));
    ATOLL_RETURN_IF_ERROR(writer.finish());
    return writer.size();
}

}  // namespace atl::weights
