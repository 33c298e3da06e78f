#include "trainer/importer/foreign_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shared/base/text.h"
#include "shared/model_config/tensors.h"
#include "trainer/importer/pickle.h"
#include "trainer/model/config.h"
#include "trainer/model/model.h"
#include "trainer/weights/load.h"
#include "trainer/weights/storage.h"

namespace atl::importer {
namespace {

using Part = ForeignTensor::Part;

Error wrong_part(const Part& part, const std::string& what) {
    return in_file(part.file->path(), "tensor " + in_quotes(part.tensor->name) + " " + what);
}

// The shape that the parts have together.
Result<std::vector<std::int64_t>> joined_shape(const std::vector<Part>& parts, Join join) {
    std::vector<std::int64_t> whole = parts.front().tensor->shape;
    const std::size_t axis = join == Join::kColumns ? 1 : 0;
    if (join == Join::kColumns && whole.size() < 2) return wrong_part(parts.front(), "is no matrix");
    for (const Part& part : std::span(parts).subspan(1)) {
        if (part.tensor->shape != parts.front().tensor->shape)
            return wrong_part(part, "has the shape " + model_config::shape_text(part.tensor->shape) + ", but in " +
                                        parts.front().file->path().filename().string() + " " +
                                        model_config::shape_text(parts.front().tensor->shape));
        if (join != Join::kCopies && __builtin_add_overflow(whole[axis], part.tensor->shape[axis], &whole[axis]))
            return wrong_part(part, "is too large");
    }
    return whole;
}

Status check_copies(const std::vector<Part>& parts) {
    const auto first = parts.front().file->bytes(*parts.front().tensor);
    for (const Part& part : std::span(parts).subspan(1)) {
        const auto bytes = part.file->bytes(*part.tensor);
        if (!std::equal(bytes.begin(), bytes.end(), first.begin(), first.end()))
            return wrong_part(part, "differs from that in " + parts.front().file->path().filename().string());
    }
    return {};
}

// Where the model's row is in the file: see ForeignTensor::rotary_heads.
std::int64_t source_row(const ForeignTensor& tensor, std::int64_t row) {
    if (tensor.rotary_heads == 0) return row;
    const std::int64_t channels = tensor.rows() / tensor.rotary_heads, channel = row % channels;
    const std::int64_t half = channel / (channels / 2), pair = channel % (channels / 2);
    return row - channel + 2 * pair + half;
}

// Row `row` of a part, as fp32 into out.
Status read_part_row(const Part& part, std::int64_t row, std::span<float> out) {
    const StoredTensor& tensor = *part.tensor;
    const std::size_t bytes = out.size() * static_cast<std::size_t>(safetensors::size_bytes(tensor.dtype));
    const auto row_bytes = part.file->bytes(tensor).subspan(static_cast<std::size_t>(row) * bytes, bytes);
    return weights::widen(tensor.dtype, row_bytes, out) ? Status()
                                                        : wrong_part(part, "holds a value that is NaN or infinite");
}

}  // namespace

Result<std::set<std::string>> file_names_in(const std::filesystem::path& directory) {
    std::error_code error;
    std::set<std::string> names;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
        names.insert(entry->path().filename().string());
    if (error) return in_file(directory, "cannot be read: " + error.message());
    return names;
}

Result<ForeignTensor> join_parts(weights::TensorSpec spec, std::vector<Part> parts, Join join) {
    for (const Part& part : parts) {
        if (!model_config::is_weight_dtype(part.tensor->dtype))
            return wrong_part(part, std::string("is ") + to_string(part.tensor->dtype) +
                                        "; only F32, F16 and BF16 weights can be imported");
        if (part.tensor->dtype != parts.front().tensor->dtype)
            return wrong_part(part, "has another type than in " + parts.front().file->path().filename().string());
    }
    ATOLL_TRY(const auto shape, joined_shape(parts, join));
    if (shape != spec.shape)
        return wrong_part(parts.front(), "has the shape " + model_config::shape_text(shape) +
                                             (parts.size() > 1 ? " with its parts" : "") + ", but the model needs " +
                                             model_config::shape_text(spec.shape));
    if (join == Join::kCopies) ATOLL_RETURN_IF_ERROR(check_copies(parts));
    spec.dtype = parts.front().tensor->dtype;
    return ForeignTensor{.spec = std::move(spec), .parts = std::move(parts), .join = join};
}

Result<ExpectedModel> expected_model(const std::string& config, const std::filesystem::path& config_path) {
    const auto parsed = model_config::parse_config(config, config_path);
    if (!parsed.ok()) return invalid_argument(config_path.string(), parsed.error().message);
    return ExpectedModel{.tensors = weights::tensor_specs(model::make_model(*parsed), false),
                         .ignorable = model_config::ignorable_tensors(*parsed)};
}

Status read_rows(const ForeignTensor& tensor, std::int64_t begin, std::int64_t end, std::span<float> out) {
    const auto columns = static_cast<std::size_t>(tensor.columns());
    const std::int64_t part_rows =
        tensor.join == Join::kRows ? tensor.rows() / static_cast<std::int64_t>(tensor.parts.size()) : tensor.rows();
    const std::size_t part_columns = tensor.join == Join::kColumns ? columns / tensor.parts.size() : columns;
    for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t from = source_row(tensor, row);
        const auto first = static_cast<std::size_t>(from / part_rows);
        for (std::size_t column = 0, part = first; column < columns; column += part_columns, ++part) {
            const auto piece = out.subspan(static_cast<std::size_t>(row - begin) * columns + column, part_columns);
            ATOLL_RETURN_IF_ERROR(read_part_row(tensor.parts[part], from % part_rows, piece));
        }
    }
    return {};
}

}  // namespace atl::importer
