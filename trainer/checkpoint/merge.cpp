#include "trainer/checkpoint/merge.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/log/progress.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/quantize.h"
#include "trainer/checkpoint/save.h"
#include "trainer/model/config.h"
#include "trainer/model/model.h"

namespace atl::checkpoint {
namespace {

constexpr std::int64_t kMergedElements = 1 << 20;
constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

// A [rank, columns] and B [rows, rank], in fp32.
struct Pair {
    std::int64_t rank = 0;
    std::vector<float> a, b;
};

Error not_for(const std::filesystem::path& adapter, const std::string& name, const std::string& what) {
    return invalid_argument(adapter.string(), adapter.string() + ": tensor \"" + name + "\" " + what);
}

Result<std::vector<float>> read_whole(const WeightReader& weights, const TensorSpec& spec) {
    std::vector<float> values(static_cast<std::size_t>(spec.shape[0] * spec.shape[1]));
    ATOLL_RETURN_IF_ERROR(weights.read(spec.name, 0, spec.shape[0] * spec.shape[1], values));
    return values;
}

const TensorSpec* find_spec(const std::vector<TensorSpec>& specs, const std::string& name) {
    const auto found = std::ranges::find(specs, name, &TensorSpec::name);
    return found == specs.end() ? nullptr : &*found;
}

// What is added to a weight; absent: nothing. Counts the adapter's tensors that are used.
Result<std::optional<Pair>> pair_of(const TensorSpec& weight, const WeightReader& adapter,
                                    const std::vector<TensorSpec>& specs, const model::LoraOptions& lora,
                                    std::size_t& used) {
    if (!weight.name.ends_with(".weight")) return std::optional<Pair>();
    const std::string module = std::string(kPrefix) + weight.name.substr(0, weight.name.size() - 7);
    const TensorSpec* const a = find_spec(specs, module + std::string(kA));
    const TensorSpec* const b = find_spec(specs, module + std::string(kB));
    if (a == nullptr && b == nullptr) return std::optional<Pair>();
    if (a == nullptr || b == nullptr) return not_for(adapter.directory(), module, "has only one of its two matrices");
    const bool fits = weight.shape.size() == 2 && a->shape == std::vector{lora.rank, weight.shape[1]} &&
                      b->shape == std::vector{weight.shape[0], lora.rank};
    if (!fits)
        return not_for(adapter.directory(), a->name,
                       "or its partner is not of the shape that " + weight.name + " needs");
    Pair pair{lora.rank, {}, {}};
    ATOLL_TRY(pair.a, read_whole(adapter, *a));
    ATOLL_TRY(pair.b, read_whole(adapter, *b));
    used += 2;
    return std::optional<Pair>(std::move(pair));
}

// values: rows [first, …) of W, to which scale · B·A is added.
void add_product(const Pair& pair, float scale, std::int64_t first, std::int64_t columns, std::span<float> values) {
    std::vector<double> row(static_cast<std::size_t>(columns));
    const auto width = static_cast<std::size_t>(columns), rank = static_cast<std::size_t>(pair.rank);
    for (std::size_t i = 0; i * width < values.size(); ++i) {
        std::ranges::fill(row, 0.0);
        const float* const b = pair.b.data() + (static_cast<std::size_t>(first) + i) * rank;
        for (std::size_t k = 0; k < rank; ++k) {
            const double factor = static_cast<double>(scale) * static_cast<double>(b[k]);
            const float* const a = pair.a.data() + k * width;
            for (std::size_t c = 0; c < width; ++c) row[c] += factor * static_cast<double>(a[c]);
        }
        float* const out = values.data() + i * width;
        for (std::size_t c = 0; c < width; ++c) out[c] = static_cast<float>(static_cast<double>(out[c]) + row[c]);
    }
}

// The matrices that a quantised base keeps in its format, by name.
Result<std::map<std::string, model::Parameter>> quantized_matrices(const MergeOptions& options) {
    std::map<std::string, model::Parameter> matrices;
    if (!options.quantize) return matrices;
    ATOLL_TRY(const model::ModelConfig config, model::load_config(options.model));
    ATOLL_TRY(model::Model model, model::make_model(config));
    model::quantize_layers(model, *options.quantize);
    for (const model::ParameterGroup& group : model.groups) {
        for (const model::Parameter& parameter : group.parameters) {
            if (tensor::is_quantized(parameter.stored)) matrices.emplace(parameter.name, parameter);
        }
    }
    return matrices;
}

// The values of W: those of the file, or what is left of them in a quantised format.
class Values {
  public:
    static Result<Values> open(const WeightReader& model, const TensorSpec& spec,
                               const std::map<std::string, model::Parameter>& quantized) {
        Values values(model, spec);
        const auto found = quantized.find(spec.name);
        if (found == quantized.end()) return values;
        if (spec.shape != found->second.shape)
            return invalid_argument(spec.name,
                                    "tensor \"" + spec.name + "\" is not of the shape that config.json needs");
        values.matrix_ = &found->second;
        ATOLL_TRY(values.storage_, read_quantized(model, found->second));
        return values;
    }
    Status read(std::int64_t begin, std::span<float> out) const {
        if (matrix_ == nullptr)
            return model_->read(spec_->name, begin, begin + static_cast<std::int64_t>(out.size()), out);
        quant::dequantize(quant_format(matrix_->stored), storage_, matrix_->shape[0], matrix_->shape[1], begin, out);
        return {};
    }

  private:
    Values(const WeightReader& model, const TensorSpec& spec) : model_(&model), spec_(&spec) {}
    const WeightReader* model_;
    const TensorSpec* spec_;
    const model::Parameter* matrix_ = nullptr;
    std::vector<std::byte> storage_;
};

Status merge_tensor(const TensorSpec& spec, const Values& model, const std::optional<Pair>& pair, float scale,
                    WeightWriter& writer) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : spec.shape) elements *= extent;
    const std::int64_t columns = spec.shape.empty() ? 1 : std::max<std::int64_t>(1, spec.shape.back());
    const std::int64_t piece = std::max<std::int64_t>(1, kMergedElements / columns) * columns;
    std::vector<float> buffer(static_cast<std::size_t>(std::min(piece, elements)));
    for (std::int64_t at = 0; at < elements; at += piece) {
        const auto values = std::span(buffer).first(static_cast<std::size_t>(std::min(piece, elements - at)));
        ATOLL_RETURN_IF_ERROR(model.read(at, values));
        if (pair) add_product(*pair, scale, at / columns, columns, values);
        ATOLL_RETURN_IF_ERROR(writer.append(values));
    }
    return {};
}

}  // namespace

Status merge_adapter(const MergeOptions& options) {
    ATOLL_RETURN_IF_ERROR(check_not_the_model(options.out, options.model));
    ATOLL_TRY(const model::LoraOptions lora, load_adapter_config(options.adapter));
    ATOLL_TRY(const WeightReader adapter, WeightReader::open_adapter(options.adapter));
    ATOLL_TRY(const WeightReader model, WeightReader::open(options.model));
    ATOLL_TRY(const auto quantized, quantized_matrices(options));
    const std::vector<TensorSpec> specs = model.tensors(), adapters = adapter.tensors();
    SaveOptions save;
    save.base = options.model;
    save.dtype = options.dtype;
    ATOLL_TRY(auto writer, WeightWriter::create(options.out, specs, save));
    std::size_t used = 0;
    log::Progress progress("merge");
    double merged = 0;
    for (const TensorSpec& spec : specs) {
        progress.at(merged++ / static_cast<double>(specs.size()));
        ATOLL_TRY(const auto pair, pair_of(spec, adapter, adapters, lora, used));
        ATOLL_TRY(const Values values, Values::open(model, spec, quantized));
        ATOLL_RETURN_IF_ERROR(merge_tensor(spec, values, pair, lora.scale(), writer));
    }
    if (used != adapters.size()) {
        return invalid_argument(options.adapter.string(), options.adapter.string() + ": only " + std::to_string(used) +
                                                              " of its " + std::to_string(adapters.size()) +
                                                              " tensors are for linears of this model");
    }
    return writer.finish();
}

}  // namespace atl::checkpoint
