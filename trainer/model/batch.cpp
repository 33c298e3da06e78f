#include "trainer/model/batch.h"

#include <algorithm>
#include <bit>
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

bool has_several_documents(const Tensor& segment_starts) {
    const std::span starts(segment_starts.i32(), static_cast<std::size_t>(segment_starts.element_count()));
    return std::ranges::any_of(starts, [](std::int32_t start) { return start != 0; });
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

BatchBuffers::List BatchBuffers::allocate_list(tensor::Arena& arena, BatchShape shape) {
    const auto most = static_cast<std::int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::min(kernels::kDocumentsMax, shape.tokens()))));
    return {arena.allocate(Category::kWorkspace, DType::kI32, {most + 1}),
            arena.allocate(Category::kWorkspace, DType::kI32, {most})};
}

kernels::Documents BatchBuffers::list_documents(const Tensor& segment_starts, const List& list) {
    const std::span starts(segment_starts.i32(), static_cast<std::size_t>(segment_starts.element_count()));
    const auto length = static_cast<std::size_t>(segment_starts.columns());
    std::vector<std::int32_t> rows;
    for (std::size_t row = 0; row < starts.size(); ++row)
        if (static_cast<std::size_t>(starts[row]) == row % length) rows.push_back(static_cast<std::int32_t>(row));
    const auto places = static_cast<std::int64_t>(std::bit_ceil(rows.size()));
    if (places > list[1].element_count()) return {.segment_starts = segment_starts};
    rows.resize(static_cast<std::size_t>(places + 1), static_cast<std::int32_t>(starts.size()));
    for (std::size_t place = 0; place < rows.size(); ++place) {
        list[0].i32()[place] = rows[place];
        if (place > 0) list[1].i32()[place - 1] = rows[place] - rows[place - 1];
    }
    return {segment_starts, Tensor(list[0].data(), DType::kI32, {places + 1}),
            Tensor(list[1].data(), DType::kI32, {places})};
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
        buffers.staging_.push_back(
            {allocate_tokens(pinned, largest, learns_positions), allocate_list(pinned, largest), {}});
    if (!backend.host_reaches_device()) buffers.documents_ = allocate_list(device, largest);
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
    kernels::Documents documents;
    if (has_several_documents(filled[3]))
        documents = staging_.empty() ? kernels::Documents{.segment_starts = filled[3]}
                                     : list_documents(filled[3], staging_[next_].documents);
    sort(filled[0], filled[4]);
    if (!filled[5].empty()) sort(filled[2], filled[5]);
    if (!staging_.empty()) documents = send(backend, filled, device, documents);
    batch_ = {.shape = host.shape,
              .input_ids = device[0],
              .targets = device[1],
              .positions = device[2],
              .documents = documents,
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

kernels::Documents BatchBuffers::send(kernels::Backend& backend, const Tokens& from, const Tokens& to,
                                      const kernels::Documents& documents) {
    using kernels::Stream;
    backend.wait(Stream::kIn, backend.record(Stream::kCompute));  // what reads the batch before
    for (std::size_t i = 0; i < from.size() && !from[i].empty(); ++i) {
        const trace::StreamSpan span(Stream::kIn, "copy in", "rows");
        backend.transfer(Stream::kIn, from[i], to[i]);
    }
    kernels::Documents sent;
    if (!documents.empty()) sent.segment_starts = to[3];
    if (documents.places() > 0) {
        sent.first_rows = documents.first_rows.at_address(documents_[0].data());
        sent.lengths = documents.lengths.at_address(documents_[1].data());
        backend.transfer(Stream::kIn, documents.first_rows, sent.first_rows);
        backend.transfer(Stream::kIn, documents.lengths, sent.lengths);
    }
    staging_[next_].sent = backend.record(Stream::kIn);
    backend.wait(Stream::kCompute, staging_[next_].sent);
    next_ = (next_ + 1) % staging_.size();
    return sent;
}

}  // namespace atl::model
