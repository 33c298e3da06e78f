#include "trainer/weights/init.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "shared/base/file.h"
#include "shared/log/progress.h"
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

Status check_tokenizer(const std::filesystem::path& directory, const model::ModelConfig& config) {
    if (directory.empty()) return {};
    ATOLL_TRY(const auto tokenizer, tokenizer::Tokenizer::open(directory));
    if (tokenizer->vocab_size() <= config.vocab_size) return {};
    return invalid_argument("vocab_size", "the tokenizer " + tokenizer->file().string() + " has " +
                                              std::to_string(tokenizer->vocab_size()) +
                                              " ids, but config.json's vocab_size is " +
                                              std::to_string(config.vocab_size));
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

Status init_model(const InitOptions& options) {
    const auto text = read_file(options.config);
    if (!text.ok()) return invalid_argument("--config", text.error().message);
    const auto config = model::parse_config(*text);
    if (!config.ok())
        return invalid_argument(config.error().field, options.config.string() + ": " + config.error().message);
    ATOLL_RETURN_IF_ERROR(check_tokenizer(options.tokenizer, *config));
    const model::Model model = model::make_model(*config);
    const DType dtype = options.dtype.value_or(file_dtype(config->dtype));
    SaveOptions save;
    save.base = options.tokenizer;
    save.config = options.config;
    ATOLL_TRY(WeightWriter writer, WeightWriter::create(options.out, tensor_specs(model, false, dtype), save));
    log::Progress progress("init");
    const auto all = static_cast<double>(model.parameter_count());
    double written = 0;
    const auto count = [&](std::size_t elements) { progress.at((written += static_cast<double>(elements)) / all); };
    for (const auto& unit : model.units)
        for (const auto& parameter : unit.parameters)
            ATOLL_RETURN_IF_ERROR(write_parameter(parameter, options.seed, writer, count));
    return writer.finish();
}

}  // namespace atl::weights
