#include "trainer/model/batch.h"

#include <string>

#include "trainer/model/config.h"
#include "trainer/tensor/targets.h"

namespace atl::model {
namespace {

using tensor::Category;
using tensor::DType;
using tensor::Tensor;

Status check_token(std::int32_t id, std::int64_t vocab_size, const char* field) {
    if (id >= 0 && id < vocab_size) return {};
    return invalid_argument(
        field, "token " + std::to_string(id) + " is outside the model's vocabulary of " + std::to_string(vocab_size));
}

Status check_sizes(const HostBatch& host, const BatchShape& largest) {
    const auto count = static_cast<std::size_t>(host.shape.tokens());
    if (host.shape.batch < 1 || host.shape.batch > largest.batch || host.shape.length != largest.length) {
        return invalid_argument("input_ids", "a batch of " + std::to_string(host.shape.batch) + " × " +
                                                 std::to_string(host.shape.length) + " does not fit buffers of " +
                                                 std::to_string(largest.batch) + " × " +
                                                 std::to_string(largest.length));
    }
    if (host.input_ids.size() != count) return invalid_argument("input_ids", "has another size than the batch");
    if (!host.labels.empty() && host.labels.size() != count) {
        return invalid_argument("labels", "have another size than the input_ids");
    }
    if (!host.segment_ids.empty() && host.segment_ids.size() != count) {
        return invalid_argument("segment_ids", "have another size than the input_ids");
    }
    return {};
}

}  // namespace

BatchBuffers BatchBuffers::allocate(tensor::Arena& arena, kernels::Backend& backend, const ModelConfig& config,
                                    BatchShape largest) {
    BatchBuffers buffers;
    buffers.largest_ = largest;
    buffers.vocab_size_ = config.vocab_size;
    buffers.one_document_a_sequence_ = config.rotation_depends_on(largest.length);
    const auto allocate = [&] {
        return arena.allocate(Category::kWorkspace, DType::kI32, {largest.batch, largest.length});
    };
    buffers.storage_.shape = largest;
    buffers.storage_.input_ids = allocate();
    buffers.storage_.targets = allocate();
    buffers.storage_.positions = allocate();
    buffers.storage_.segment_starts = allocate();
    buffers.storage_.rope_table =
        arena.allocate(Category::kWorkspace, kernels::kStatistics, {largest.length, config.head_dim});
    buffers.batch_ = buffers.storage_;
    if (arena.is_measuring()) return buffers;
    backend.copy_from_host(make_rope_table(config, 0, largest.length).data(), buffers.storage_.rope_table);
    const auto count = static_cast<std::size_t>(largest.tokens());
    buffers.targets_.resize(count);
    buffers.positions_.resize(count);
    buffers.starts_.resize(count);
    buffers.counts_.resize(static_cast<std::size_t>(largest.batch));
    return buffers;
}

Result<std::span<const std::int64_t>> BatchBuffers::load(kernels::Backend& backend, const HostBatch& host) {
    ATOLL_RETURN_IF_ERROR(check_sizes(host, largest_));
    for (std::int64_t sequence = 0; sequence < host.shape.batch; ++sequence) {
        ATOLL_TRY(counts_[static_cast<std::size_t>(sequence)], prepare(host, sequence));
    }
    copy(backend, host);
    return std::span<const std::int64_t>(counts_).first(static_cast<std::size_t>(host.shape.batch));
}

Result<std::int64_t> BatchBuffers::prepare(const HostBatch& host, std::int64_t sequence) {
    const auto length = static_cast<std::size_t>(host.shape.length);
    const std::size_t first = static_cast<std::size_t>(sequence) * length;
    const auto of_sequence = [&](std::span<const std::int32_t> all) {
        return all.empty() ? all : all.subspan(first, length);
    };
    const auto ids = of_sequence(host.input_ids), segment_ids = of_sequence(host.segment_ids);
    const auto labels = host.labels.empty() ? ids : of_sequence(host.labels);
    std::size_t start = 0;
    std::int64_t counted = 0;
    for (std::size_t t = 0; t < length; ++t) {
        ATOLL_RETURN_IF_ERROR(check_token(ids[t], vocab_size_, "input_ids"));
        if (labels[t] != kernels::kIgnoredLabel) {
            ATOLL_RETURN_IF_ERROR(check_token(labels[t], vocab_size_, "labels"));
        }
        if (tensor::begins_document(segment_ids, t)) start = t;
        if (start > 0 && one_document_a_sequence_) {
            return invalid_argument("segment_ids", "several documents in a row of " + std::to_string(length) +
                                                       " tokens are not built for rope type 'dynamic' beyond "
                                                       "max_position_embeddings: use padding, or shorter rows");
        }
        const bool has_target = t + 1 < length && tensor::is_target(labels, segment_ids, t + 1);
        starts_[first + t] = static_cast<std::int32_t>(start);
        positions_[first + t] = static_cast<std::int32_t>(t - start);
        targets_[first + t] = has_target ? labels[t + 1] : kernels::kIgnoredLabel;
        counted += has_target ? 1 : 0;
    }
    return counted;
}

void BatchBuffers::copy(kernels::Backend& backend, const HostBatch& host) {
    const auto view = [&](const Tensor& storage) {
        return Tensor(storage.data(), DType::kI32, {host.shape.batch, host.shape.length});
    };
    batch_ = {.shape = host.shape,
              .input_ids = view(storage_.input_ids),
              .targets = view(storage_.targets),
              .positions = view(storage_.positions),
              .segment_starts = view(storage_.segment_starts),
              .rope_table = storage_.rope_table,
              .first_sequence = host.first_sequence};
    backend.copy_from_host(host.input_ids.data(), batch_.input_ids);
    backend.copy_from_host(targets_.data(), batch_.targets);
    backend.copy_from_host(positions_.data(), batch_.positions);
    backend.copy_from_host(starts_.data(), batch_.segment_starts);
}

}  // namespace atl::model
