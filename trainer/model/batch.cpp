#include "trainer/model/batch.h"

#include <string>

#include "trainer/model/config.h"
#include "trainer/tensor/sort_by_id.h"
#include "trainer/tensor/targets.h"
#include "trainer/trace/trace.h"

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

void sort(const Tensor& ids, const Tensor& places) {
    const auto count = static_cast<std::size_t>(ids.element_count());
    tensor::sort_by_id({ids.i32(), count}, {places.i32(), count});
}

}  // namespace

BatchBuffers::Tokens BatchBuffers::allocate_tokens(tensor::Arena& arena, BatchShape shape, bool learns_positions) {
    Tokens tokens;
    for (std::size_t i = 0; i < tokens.size() - (learns_positions ? 0 : 1); ++i)
        tokens[i] = arena.allocate(Category::kWorkspace, DType::kI32, {shape.batch, shape.length});
    return tokens;
}

BatchBuffers::Tokens BatchBuffers::first_sequences(const Tokens& tokens, BatchShape shape) {
    Tokens first;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (!tokens[i].empty()) first[i] = Tensor(tokens[i].data(), DType::kI32, {shape.batch, shape.length});
    }
    return first;
}

BatchBuffers BatchBuffers::allocate(tensor::Arena& device, tensor::Arena& pinned, kernels::Backend& backend,
                                    const ModelConfig& config, BatchShape largest, std::int64_t ahead) {
    BatchBuffers buffers;
    buffers.largest_ = largest;
    buffers.vocab_size_ = config.vocab_size;
    buffers.one_document_a_sequence_ = config.rotation_depends_on(largest.length);
    const bool learns_positions = config.architecture.positions == Positions::kLearned;
    buffers.storage_ = allocate_tokens(device, largest, learns_positions);
    for (std::int64_t load = 0; load < ahead && !backend.host_reaches_device(); ++load)
        buffers.staging_.push_back({allocate_tokens(pinned, largest, learns_positions), {}});
    buffers.batch_.rope_table =
        device.allocate(Category::kWorkspace, kernels::kStatistics, {largest.length, config.head_dim});
    if (device.is_measuring()) return buffers;
    backend.copy_from_host(make_rope_table(config, 0, largest.length).data(), buffers.batch_.rope_table);
    buffers.counts_.resize(static_cast<std::size_t>(largest.batch));
    return buffers;
}

Result<std::span<const std::int64_t>> BatchBuffers::load(kernels::Backend& backend, const HostBatch& host) {
    ATOLL_RETURN_IF_ERROR(check_sizes(host, largest_));
    const Tokens device = first_sequences(storage_, host.shape);
    if (staging_.empty()) {
        backend.synchronize();
    } else {
        backend.wait_on_host(staging_[next_].sent);
    }
    const Tokens filled = staging_.empty() ? device : first_sequences(staging_[next_].tokens, host.shape);
    for (std::int64_t sequence = 0; sequence < host.shape.batch; ++sequence) {
        ATOLL_TRY(counts_[static_cast<std::size_t>(sequence)], prepare(host, sequence, filled));
    }
    sort(filled[0], filled[4]);
    if (!filled[5].empty()) sort(filled[2], filled[5]);
    if (!staging_.empty()) send(backend, filled, device);
    batch_ = {.shape = host.shape,
              .input_ids = device[0],
              .targets = device[1],
              .positions = device[2],
              .segment_starts = device[3],
              .by_id = device[4],
              .by_position = device[5],
              .rope_table = batch_.rope_table,
              .first_sequence = host.first_sequence};
    return std::span<const std::int64_t>(counts_).first(static_cast<std::size_t>(host.shape.batch));
}

Result<std::int64_t> BatchBuffers::prepare(const HostBatch& host, std::int64_t sequence, const Tokens& to) const {
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
        to[0].i32()[first + t] = ids[t];
        to[1].i32()[first + t] = has_target ? labels[t + 1] : kernels::kIgnoredLabel;
        to[2].i32()[first + t] = static_cast<std::int32_t>(t - start);
        to[3].i32()[first + t] = static_cast<std::int32_t>(start);
        counted += has_target ? 1 : 0;
    }
    return counted;
}

void BatchBuffers::send(kernels::Backend& backend, const Tokens& from, const Tokens& to) {
    using kernels::Stream;
    backend.wait(Stream::kIn, backend.record(Stream::kCompute));  // what reads the batch before
    for (std::size_t i = 0; i < from.size() && !from[i].empty(); ++i) {
        const trace::StreamSpan span(Stream::kIn, "copy in", "rows");
        backend.transfer(Stream::kIn, from[i], to[i]);
    }
    staging_[next_].sent = backend.record(Stream::kIn);
    backend.wait(Stream::kCompute, staging_[next_].sent);
    next_ = (next_ + 1) % staging_.size();
}

}  // namespace atl::model
