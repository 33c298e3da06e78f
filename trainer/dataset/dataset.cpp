#include "trainer/dataset/dataset.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/spelling.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"
#include "shared/safetensors/file.h"
#include "trainer/tensor/targets.h"

namespace atl::dataset {
namespace {

constexpr std::int64_t kRowsMax = std::int64_t{1} << 40;
constexpr std::int64_t kSeqLenMax = std::int64_t{1} << 24;

// Rows read at a time by check_tokens().
constexpr std::int64_t kCheckedBytes = 1 << 18;

// An int32 matrix in the file, which must stay where it is. It is read, not mapped: memory then has the rows in use
// alone, whatever the size of the file.
class Matrix {
  public:
    Matrix() = default;
    Matrix(const safetensors::File& file, const safetensors::TensorInfo& tensor) : file_(&file), tensor_(&tensor) {}
    bool present() const { return file_ != nullptr; }
    // Whole rows from `row` on, as many as `out` has room for.
    Status read(std::int64_t row, std::span<std::int32_t> out) const {
        const std::int64_t row_bytes = tensor_->shape[1] * static_cast<std::int64_t>(sizeof(std::int32_t));
        return file_->read(*tensor_, static_cast<std::uint64_t>(row * row_bytes), std::as_writable_bytes(out));
    }

  private:
    const safetensors::File* file_ = nullptr;
    const safetensors::TensorInfo* tensor_ = nullptr;
};

Error in_file(const std::filesystem::path& path, const std::string& what) {
    return invalid_argument(path.string(), path.string() + ": " + what);
}

// The tensor, or an absent matrix. `shape` is what it must have; empty: any [rows, seq_len].
Result<Matrix> find_matrix(const safetensors::File& file, const char* name, const std::vector<std::int64_t>& shape) {
    const safetensors::TensorInfo* tensor = file.header().find(name);
    if (tensor == nullptr) return Matrix();
    const std::string quoted = std::string("tensor \"") + name + "\"";
    if (tensor->dtype != safetensors::DType::kI32)
        return in_file(file.path(), quoted + " is " + to_string(tensor->dtype) + ", but must be I32");
    if (tensor->shape.size() != 2 || (!shape.empty() && tensor->shape != shape))
        return in_file(file.path(), quoted + " has another shape than [rows, seq_len] of input_ids");
    return Matrix(file, *tensor);
}

// What is not known may be meant to count, as a mistyped "label" is.
Status check_names(const safetensors::File& file) {
    const std::vector<std::string> known = {"input_ids", "labels", "segment_ids"};
    for (const safetensors::TensorInfo& tensor : file.header().tensors) {
        if (std::ranges::find(known, tensor.name) != known.end()) continue;
        return in_file(file.path(), "tensor \"" + tensor.name +
                                        "\" is none that data have: input_ids, labels and segment_ids" +
                                        did_you_mean(tensor.name, known));
    }
    return {};
}

// A user's first idea is to give the text itself: it would be refused for its header of absurd length.
Status refuse_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    char begin[9] = {};  // of a .safetensors file: the header's length, little endian, and its '{'
    file.read(begin, sizeof begin);
    const std::string_view bytes(begin, static_cast<std::size_t>(file.gcount()));
    const bool is_compressed = bytes.starts_with("\x1f\x8b") || bytes.starts_with("\x28\xb5\x2f\xfd");
    const bool is_text = !bytes.empty() && std::ranges::all_of(bytes, [](unsigned char c) {
        return c >= 0x20 || c == '\t' || c == '\n' || c == '\r';
    });
    if (!is_compressed && !is_text) return {};
    return in_file(path, "this is text: run `atoll-trainer tokenize` first and give what it wrote");
}

Result<DatasetInfo> read_info(const std::filesystem::path& path) {
    ATOLL_TRY(const std::string text, read_file(path));
    const auto parsed = json::parse(text);
    if (!parsed.ok()) return in_file(path, parsed.error().message);
    json::ObjectReader reader(*parsed);
    constexpr std::int64_t kMax = std::int64_t{1} << 62;
    DatasetInfo info;
    reader.required_integer("schema", 1, 1);
    info.tokenizer_sha256 = reader.required_string("tokenizer_sha256");
    info.tokenizer_reader = reader.integer_or("tokenizer_reader", 0, 0, kMax);
    info.batching = reader.one_of("batching", {"packing", "padding"}, "packing");
    info.text_template = reader.string_or("template", "");
    info.fingerprint = reader.required_string("fingerprint");
    info.documents = reader.required_integer("documents", 0, kMax);
    info.without_end = reader.integer_or("without_end", 0, 0, kMax);
    info.rows = reader.required_integer("rows", 1, kRowsMax);
    info.seq_len = reader.required_integer("seq_len", 1, kSeqLenMax);
    info.tokens = reader.required_integer("tokens", 0, kMax);
    // Other members describe how the data was made; they may grow without harm.
    for (const auto& [key, value] : parsed->items()) reader.any_or_null(key.c_str());
    const Status status = reader.finish();
    if (!status.ok()) return in_file(path, describe(status.error()));
    return info;
}

}  // namespace

struct Dataset::Impl {
    std::optional<safetensors::File> file;
    DatasetInfo info;
    Matrix input_ids;
    Matrix labels;
    Matrix segment_ids;
    bool documents_joined = false;

    // What counts in the loss when the file has no labels: everything but the padding.
    void labels_from_segments(std::span<const std::int32_t> segments, std::span<std::int32_t> labels_out) const {
        for (std::size_t i = 0; i < segments.size(); ++i)
            if (segments[i] == 0) labels_out[i] = tensor::kIgnoredLabel;
    }
};

Dataset::Dataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Result<Dataset> Dataset::open(const std::filesystem::path& path) {
    std::error_code ignored;
    const bool is_directory = std::filesystem::is_directory(path, ignored);
    auto impl = std::make_unique<Impl>();
    if (is_directory) {
        ATOLL_TRY(impl->info, read_info(path / "data.json"));
    }
    if (!is_directory) ATOLL_RETURN_IF_ERROR(refuse_text(path));
    ATOLL_TRY(impl->file, safetensors::File::open(is_directory ? path / "data.safetensors" : path));
    const safetensors::File& file = *impl->file;
    const safetensors::TensorInfo* ids = file.header().find("input_ids");
    if (ids == nullptr) return in_file(file.path(), "the tensor \"input_ids\" is missing");
    ATOLL_RETURN_IF_ERROR(check_names(file));
    ATOLL_TRY(impl->input_ids, find_matrix(file, "input_ids", {}));
    ATOLL_TRY(impl->labels, find_matrix(file, "labels", ids->shape));
    ATOLL_TRY(impl->segment_ids, find_matrix(file, "segment_ids", ids->shape));
    const std::int64_t rows = ids->shape[0];
    const std::int64_t seq_len = ids->shape[1];
    if (rows < 1 || rows > kRowsMax || seq_len < 1 || seq_len > kSeqLenMax)
        return in_file(file.path(), "input_ids holds no rows, or more than this program takes");
    if (is_directory && (rows != impl->info.rows || seq_len != impl->info.seq_len))
        return in_file(file.path(), "input_ids has another shape than data.json says");
    impl->info.rows = rows;
    impl->info.seq_len = seq_len;
    return Dataset(std::move(impl));
}

void Dataset::join_documents() {
    impl_->documents_joined = true;
}

bool Dataset::has_documents() const {
    return impl_->segment_ids.present() && impl_->info.batching != "padding";
}

const std::filesystem::path& Dataset::path() const {
    return impl_->file->path();
}

const DatasetInfo& Dataset::info() const {
    return impl_->info;
}

Status Dataset::check_tokens(std::int32_t vocab_size, std::int64_t row_begin, std::int64_t row_end,
                             const std::function<void(std::int64_t rows)>& on_rows) const {
    check(row_begin >= 0 && row_end <= rows(), "check_tokens beyond the rows");
    const std::int64_t rows_max =
        std::max<std::int64_t>(1, kCheckedBytes / static_cast<std::int64_t>(sizeof(std::int32_t)) / seq_len());
    std::vector<std::int32_t> ids;
    const auto check_rows = [&](const Matrix& matrix, std::int64_t first, const char* what, bool ignored_allowed) {
        const Status status = matrix.read(first, ids);
        if (!status.ok()) return status;
        const auto bad = std::ranges::find_if(ids, [&](std::int32_t id) {
            return (id < 0 || id >= vocab_size) && !(ignored_allowed && id == tensor::kIgnoredLabel);
        });
        if (bad == ids.end()) return Status();
        const std::int64_t at = bad - ids.begin();
        return Status(in_file(impl_->file->path(), std::string(what) + " " + std::to_string(*bad) + " in row " +
                                                       std::to_string(first + at / seq_len()) + ", column " +
                                                       std::to_string(at % seq_len()) +
                                                       " is outside the vocabulary of " + std::to_string(vocab_size)));
    };
    for (std::int64_t first = row_begin; first < row_end; first += rows_max) {
        const std::int64_t count = std::min(rows_max, row_end - first);
        ids.resize(static_cast<std::size_t>(count * seq_len()));
        ATOLL_RETURN_IF_ERROR(check_rows(impl_->input_ids, first, "token", false));
        if (impl_->labels.present()) ATOLL_RETURN_IF_ERROR(check_rows(impl_->labels, first, "label", true));
        if (on_rows) on_rows(count);
    }
    return {};
}

Status Dataset::check_tokenizer(const std::string& tokenizer_sha256, std::int64_t reader) const {
    if (tokenizer_sha256.empty() || info().tokenizer_sha256.empty() || tokenizer_sha256 == info().tokenizer_sha256)
        return {};
    if (info().tokenizer_reader != reader)
        return conflict(impl_->file->path().parent_path().string() + " was prepared by " +
                            (info().tokenizer_reader < reader ? "an older" : "a newer") +
                            " version, which reads tokenizers differently: tokenize the text again with this one",
                        impl_->file->path().parent_path().string());
    return conflict(impl_->file->path().parent_path().string() + " was made with another tokenizer (" +
                        info().tokenizer_sha256 + "), or other settings of it, than the model's (" + tokenizer_sha256 +
                        "): tokenize the text again with --tokenizer MODEL, or give the model that it was made for",
                    impl_->file->path().parent_path().string());
}

Result<std::string> Dataset::sha256(const std::function<void(std::int64_t bytes)>& on_read) const {
    return digest::sha256_file(impl_->file->path(), on_read);
}

Status Dataset::read(const RowOrder& order, std::int64_t begin, std::int64_t count, Batch& batch) const {
    check(order.rows() <= rows(), "an order of more rows than the data set has");
    const auto length = static_cast<std::size_t>(seq_len());
    const std::size_t size = static_cast<std::size_t>(count) * length;
    batch.rows = count;
    batch.seq_len = seq_len();
    batch.input_ids.resize(size);
    batch.labels.resize(size);
    batch.segment_ids.resize(impl_->segment_ids.present() ? size : 0);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = order.row_at(begin + i);
        const auto of_row = [&](std::vector<std::int32_t>& all) {
            return std::span(all).subspan(static_cast<std::size_t>(i) * length, length);
        };
        ATOLL_RETURN_IF_ERROR(impl_->input_ids.read(row, of_row(batch.input_ids)));
        if (impl_->labels.present()) {
            ATOLL_RETURN_IF_ERROR(impl_->labels.read(row, of_row(batch.labels)));
        } else {
            std::ranges::copy(of_row(batch.input_ids), of_row(batch.labels).begin());
        }
        if (!impl_->segment_ids.present()) continue;
        ATOLL_RETURN_IF_ERROR(impl_->segment_ids.read(row, of_row(batch.segment_ids)));
        if (!impl_->labels.present()) impl_->labels_from_segments(of_row(batch.segment_ids), of_row(batch.labels));
    }
    if (impl_->documents_joined) batch.segment_ids.clear();
    return {};
}

}  // namespace atl::dataset
