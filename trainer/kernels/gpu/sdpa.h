#pragma once

#include <memory>
#include <string>

#include "shared/base/result.h"
#include "trainer/kernels/gpu/attention_memory.h"
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

    using Pass = SdpaPass;
    using Kind = SdpaKind;
    using Tensors = SdpaTensors;
    // What a pass needs beside its tensors, aligned to kSdpaWorkspaceAlignment. kUnavailable, with the library's words:
    // it has no kernel for this. The first question about a kind makes a plan, which takes about a second.
    Result<std::int64_t> workspace_bytes(const Kind& kind);

    // A pass for which workspace_bytes() has an answer.
    void run(cudaStream_t stream, const Kind& kind, const Tensors& tensors, std::byte* workspace);

  private:
    struct State;
    explicit Sdpa(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace atl::kernels::gpu
