#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/result.h"
#include "trainer/kernels/backend.h"
#include "trainer/kernels/formats.h"
#include "trainer/model/config.h"
#include "trainer/tensor/arena.h"

namespace atl::model {

struct BatchShape {
    std::int64_t batch = 0;   // B sequences
    std::int64_t length = 0;  // T tokens a sequence
    std::int64_t tokens() const { return batch * length; }
    bool operator==(const BatchShape&) const = default;
};

// What blocks read of a micro-batch, on the device.
struct Batch {
    BatchShape shape;
    tensor::Tensor input_ids;      // int32 [B, T]
    tensor::Tensor targets;        // int32 [B, T]: the label of the next token, −100 = not counted
    tensor::Tensor positions;      // int32 [B, T]: from 0 in each document
    kernels::Documents documents;  // none: each sequence is one
    // int32 [B·T]: the batch's tokens sorted by id, and by position where positions are learned, see
    // kernels::Backend::embedding_backward. Empty where nothing is trained.
    tensor::Tensor by_id, by_position;
    tensor::Tensor rope_table;        // fp32 [T, D]: see kernels::Backend::rope
    std::int64_t first_sequence = 0;  // where its first sequence stands in the whole training's order
};

// A micro-batch as the data has it, in host memory, row-major [B, T]. Labels are not shifted: as in transformers, the
// logits at t are scored against labels[t + 1]. Without labels the inputs are the labels.
//
// segment_ids: equal neighbours are one document. A document sees only itself, its positions start at 0 and its first
// token is no target, exactly as if it were a sequence of its own (what transformers computes for position_ids that
// restart and labels of −100 at each document's first token). Without segment_ids a sequence is one document.
struct HostBatch {
    BatchShape shape;
    std::span<const std::int32_t> input_ids;
    std::span<const std::int32_t> labels;
    std::span<const std::int32_t> segment_ids;
    std::int64_t first_sequence = 0;  // Batch::first_sequence
};

// A batch's device memory; made once, loaded for every micro-batch of this shape or of fewer sequences. Where the host
// does not reach the device's memory there is pinned memory for `ahead` loads, which the host fills without waiting
// for the device to have done with those before.
class BatchBuffers {
  public:
    // With measuring arenas only the memory is counted.
    static BatchBuffers allocate(tensor::Arena& device, tensor::Arena& pinned, kernels::Backend& backend,
                                 const ModelConfig& config, BatchShape largest, std::int64_t ahead = 1);

    // Checks, shifts and copies it. Returns the number of counted targets of each sequence, valid until the next
    // load. kInvalidArgument: an id or a label outside the vocabulary, more sequences or tokens than fit, or several
    // documents in a sequence whose rotation depends on its length (transformers' would depend on the rest of the
    // batch); then there is no batch.
    Result<std::span<const std::int64_t>> load(kernels::Backend& backend, const HostBatch& host);
    const Batch& batch() const { return batch_; }

  private:
    // The tensors of tokens: ids, targets, positions, segment starts, by id, by position. The last is empty where
    // positions are not learned.
    using Tokens = std::array<tensor::Tensor, 6>;  // int32 [B, T]
    // The list of kernels::Documents, as long as any may be: first rows and lengths. Only where the host does not reach
    // the device's memory.
    using List = std::array<tensor::Tensor, 2>;
    struct Staging {
        Tokens tokens;        // pinned
        List documents;       // likewise
        kernels::Event sent;  // when they may be overwritten
    };
    static Tokens allocate_tokens(tensor::Arena& arena, BatchShape shape, bool learns_positions);
    static List allocate_list(tensor::Arena& arena, BatchShape shape);
    // Of the documents that begin at these rows. Without places where there are too many.
    static kernels::Documents list_documents(const tensor::Tensor& segment_starts, const List& list);
    static Tokens first_sequences(const Tokens& tokens, BatchShape shape);
    // Checks one sequence and shifts it. Returns the number of its counted targets.
    Result<std::int64_t> prepare(const HostBatch& host, std::int64_t sequence, const Tokens& to) const;
    // Returns the documents as the device has them.
    kernels::Documents send(kernels::Backend& backend, const Tokens& from, const Tokens& to,
                            const kernels::Documents& documents);

    BatchShape largest_;
    std::int64_t vocab_size_ = 0;
    bool one_document_a_sequence_ = false;
    Tokens storage_;  // of the largest shape
    List documents_;
    std::vector<Staging> staging_;  // none where the host reaches the device's memory
    std::size_t next_ = 0;          // staging
    Batch batch_;                   // views of the shape that was loaded
    std::vector<std::int64_t> counts_;
};

// fp32 [end − begin, D]: cosines and sines of positions begin … end − 1 in a sequence of `end` tokens, times
// RopeConfig::attention_factor.
std::vector<float> make_rope_table(const ModelConfig& config, std::int64_t begin, std::int64_t end);

}  // namespace atl::model
