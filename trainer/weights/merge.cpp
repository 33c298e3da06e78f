#include "trainer/weights/merge.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/log/progress.h"
#include "trainer/model/model.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/load.h"
#include "trainer/weights/save.h"
#include "trainer/weights/storage.h"

namespace atl::weights {
namespace {

constexpr std::int64_t kMergedElements = 1 << 20;
using adapter::kA;
using adapter::kB;
using adapter::kPrefix;

// A [rank, columns] and B [rows, rank], in fp32.
struct Pair {
    std::int64_t rank = 0;
    std::vector<float> a, b;
};

Result<std::vector<float>> read_whole(const WeightReader& weights, const model::Parameter& matrix) {
    std::vector<float> values(static_cast<std::size_t>(matrix.element_count()));
    ATOLL_RETURN_IF_ERROR(weights.read(matrix.name, 0, matrix.element_count(), values));
    return values;
}

// The model's own parameters, or its adapters', in their order.
std::vector<const model::Parameter*> list_parameters(const model::Model& model, bool adapters) {
    std::vector<const model::Parameter*> all;
    for (const model::FsdpUnit& unit : model.units) {
        if (unit.is_adapter != adapters) continue;
        for (const model::Parameter& parameter : unit.parameters) all.push_back(&parameter);
    }
    return all;
}

// What is added to a weight; absent: nothing.
Result<std::optional<Pair>> read_pair(const model::Parameter& weight, const WeightReader& adapter,
                                      const std::vector<const model::Parameter*>& matrices) {
    const auto find = [&](std::string_view suffix) {
        const std::string name = std::string(kPrefix) + model::module_name(weight) + std::string(suffix);
        return std::ranges::find(matrices, name, &model::Parameter::name);
    };
    const auto a = find(kA), b = find(kB);
    if (a == matrices.end() || b == matrices.end()) return std::optional<Pair>();
    Pair pair{(*a)->shape[0], {}, {}};
    ATOLL_TRY(pair.a, read_whole(adapter, **a));
    ATOLL_TRY(pair.b, read_whole(adapter, **b));
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

// The values of W: those of the file, or what is left of them in a quantised format.
class Values {
  public:
    static Result<Values> open(const WeightReader& model, const model::Parameter& parameter) {
        Values values(model, parameter);
        if (!tensor::is_quantized(parameter.stored)) return values;
        ATOLL_TRY(values.storage_, read_quantized(model, parameter));
        return values;
    }
    Status read(std::int64_t begin, std::span<float> out) const {
        const model::Parameter& matrix = *parameter_;
        if (!tensor::is_quantized(matrix.stored))
            return model_->read(matrix.name, begin, begin + static_cast<std::int64_t>(out.size()), out);
        quant::dequantize(quant_format(matrix.stored), storage_, matrix.shape[0], matrix.shape[1], begin, out);
        return {};
    }

  private:
    Values(const WeightReader& model, const model::Parameter& parameter) : model_(&model), parameter_(&parameter) {}
    const WeightReader* model_;
    const model::Parameter* parameter_;
    std::vector<std::byte> storage_;
};

Status merge_tensor(const model::Parameter& parameter, const Values& model, const std::optional<Pair>& pair,
                    float scale, WeightWriter& writer) {
    const std::int64_t elements = parameter.element_count();
    const std::int64_t columns = std::max<std::int64_t>(1, parameter.shape.back());
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

Result<ModelSize> merge_adapter(const MergeOptions& options, const model::Model& adapted) {
    ATOLL_RETURN_IF_ERROR(check_not_the_model(options.out, options.model));
    ATOLL_TRY(const model::LoraOptions lora, load_adapter_config(options.adapter));
    ATOLL_TRY(const WeightReader adapter, WeightReader::open_adapter(options.adapter));
    ATOLL_TRY(const WeightReader model, WeightReader::open(options.model));
    const auto weights = list_parameters(adapted, false), matrices = list_parameters(adapted, true);
    std::vector<TensorSpec> specs;
    for (const model::Parameter* weight : weights) {
        ATOLL_TRY(const DType dtype, model.dtype(weight->name));
        specs.push_back({weight->name, weight->shape, dtype});
    }
    SaveOptions save;
    save.base = options.model;
    save.dtype = options.dtype;
    save.is_whole_command = true;
    ATOLL_TRY(auto writer, WeightWriter::create(options.out, std::move(specs), save));
    log::Progress progress("merge");
    double merged = 0;
    for (const model::Parameter* weight : weights) {
        progress.at(merged++ / static_cast<double>(weights.size()));
        ATOLL_TRY(const auto pair, read_pair(*weight, adapter, matrices));
        ATOLL_TRY(const Values values, Values::open(model, *weight));
        ATOLL_RETURN_IF_ERROR(merge_tensor(*weight, values, pair, lora.scale_of(model::module_name(*weight)), writer));
    }
    ATOLL_RETURN_IF_ERROR(writer.finish());
    return writer.size();
}

}  // namespace atl::weights
