#pragma once

#include <memory>
#include <string>

#include "shared/base/result.h"
#include "trainer/kernels/backend.h"
#include "trainer/kernels/gpu/runtime.h"

namespace atl::kernels::gpu {

// Scaled dot-product attention by a library's own kernel for each pass: cuDNN's (sdpa_cudnn.cpp), in tests the
// definition in fp64 (testing/sdpa_shim.cpp), for HIP none (no_sdpa.cu). Causal, in bf16 and fp16. What it adds up in
// the backward pass it may add in an order that varies. Not thread-safe.
class Sdpa {
  public:
    // For the current GPU. Null: this build knows no such library. kUnavailable, with what to do: it does not open, or
    // is too old.
    static Result<std::unique_ptr<Sdpa>> open();
    // Plans for a card that is not here, described by cuDNN's JSON (`bench/gpu/facts.py` prints a card's own): run()
    // is not possible. kInvalidArgument: the library does not take the description.
    static Result<std::unique_ptr<Sdpa>> open_for_card(const std::string& description);
    ~Sdpa();

    std::string library() const;  // with its version: "cuDNN 9.19.0"

    enum class Pass : std::uint8_t { kForward, kBackward };
    struct Kind {
        AttentionShape shape;
        Pass pass;
        std::int64_t places = 0;  // of the list of documents; 0: each sequence is one
    };
    // What a pass needs beside its tensors, aligned to kWorkspaceAlignment. kUnavailable, with the library's words: it
    // has no kernel for this. The first question about a kind makes a plan, which takes about a second.
    Result<std::int64_t> workspace_bytes(const Kind& kind);
    static constexpr std::int64_t kWorkspaceAlignment = 256;

    // As Backend::attention_forward and attention_backward have them, without the rotation. N = B·T rows.
    struct Tensors {
        Tensor qkv = {}, out = {};
        Tensor log_sums = {};  // fp32 [B, H, T], of documents [N, H]: of the exponentials of a query's scores
        // Backward only. The gradients lie side by side in rows as those of qkv; of documents each is dense.
        Tensor out_gradient = {}, query_gradient = {}, key_gradient = {}, value_gradient = {};
        // Documents only: int32 [places], and where each begins, int32 [places + 1], in elements.
        Tensor lengths = {}, first_of_qkv = {}, first_of_out = {}, first_of_keys = {}, first_of_log_sums = {};
    };
    // A pass for which workspace_bytes() has an answer.
    void run(cudaStream_t stream, const Kind& kind, const Tensors& tensors, std::byte* workspace);

  private:
    struct State;
    explicit Sdpa(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace atl::kernels::gpu
