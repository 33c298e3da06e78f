#include <algorithm>
#include <span>
#include <utility>

#include "trainer/weights/load.h"
#include "trainer/weights/storage.h"

namespace atl::weights {
namespace {

constexpr std::int64_t kElementsAtOnce = 1 << 16;

Status append_rows(const WeightReader& weights, const model::Parameter& matrix, quant::Quantizer& quantizer) {
    const std::int64_t columns = matrix.shape[1], elements = matrix.element_count();
    const std::int64_t step = std::max<std::int64_t>(1, kElementsAtOnce / columns) * columns;
    std::vector<float> buffer(static_cast<std::size_t>(std::min(step, elements)));
    for (std::int64_t begin = 0; begin < elements; begin += step) {
        const std::int64_t end = std::min(begin + step, elements);
        const std::span<float> values = std::span(buffer).first(static_cast<std::size_t>(end - begin));
        ATOLL_RETURN_IF_ERROR(weights.read(matrix.name, begin, end, values));
        quantizer.append(values);
    }
    return {};
}

}  // namespace

Status read_quantized(const WeightReader& weights, const model::Parameter& matrix, quant::TakeBytes take) {
    quant::Quantizer quantizer(quant_format(matrix.stored), matrix.shape[0], matrix.shape[1], std::move(take));
    ATOLL_RETURN_IF_ERROR(append_rows(weights, matrix, quantizer));
    quantizer.finish();
    return {};
}

Result<std::vector<std::byte>> read_quantized(const WeightReader& weights, const model::Parameter& matrix) {
    quant::Quantizer quantizer(quant_format(matrix.stored), matrix.shape[0], matrix.shape[1]);
    ATOLL_RETURN_IF_ERROR(append_rows(weights, matrix, quantizer));
    return quantizer.finish();
}

}  // namespace atl::weights
