#include "trainer/kernels/planned_gpu.h"

#include <cstdlib>

#include "trainer/kernels/gpu/cudnn_workspace.h"
#include "trainer/kernels/gpu/own_memory.h"

namespace atl::kernels {
namespace {

using Shape = AttentionShape;

[[noreturn]] void refuse() {
    check(false, "a GPU that is only planned for computes nothing");
    std::abort();
}

class PlannedGpuBackend final : public Backend {
  public:
    explicit PlannedGpuBackend(const PlannedGpu& gpu) : gpu_(gpu) {
        if (gpu.deterministic) return;
        library_ = [architecture = gpu.architecture](const gpu::SdpaKind& kind) {
            return gpu::cudnn_workspace_bytes(architecture, kind);
        };
    }

    std::string name() const override { return "planned (sm_" + std::to_string(gpu_.architecture) + ")"; }
    std::int64_t own_bytes() const override { return gpu::kOwnBytes; }
    std::optional<DeviceMemory> device_memory() const override {
        return DeviceMemory{gpu_.memory_bytes - gpu_.driver_bytes - own_bytes(), gpu_.memory_bytes};
    }
    bool host_reaches_device() const override { return false; }
    bool multiplies_quantized() const override { return false; }
    std::int64_t attention_kept_bytes(const Shape& shape) const override { return gpu::attention_kept_bytes(shape); }
    std::int64_t attention_workspace_bytes(const Shape& shape) const override {
        return gpu::attention_workspace_bytes(shape, library_);
    }
    std::int64_t attention_cached_workspace_bytes(const Shape& shape, std::int64_t keys_max) const override {
        return gpu::attention_cached_workspace_bytes(shape, keys_max);
    }
    std::int64_t loss_rows(std::int64_t vocabulary) const override { return gpu::loss_rows(vocabulary); }

    Result<tensor::Memory> allocate(Space, std::int64_t) override { refuse(); }
    void copy(const Tensor&, const Tensor&) override { refuse(); }
    void copy_from_host(const void*, const Tensor&) override { refuse(); }
    void copy_to_host(const Tensor&, void*) override { refuse(); }
    void zero(const Tensor&) override { refuse(); }
    void synchronize() override {}  // nothing was asked for
    void transfer(Stream, const Tensor&, const Tensor&) override { refuse(); }
    Event record(Stream) override { refuse(); }
    void wait(Stream, Event) override { refuse(); }
    bool has_happened(Event) override { refuse(); }
    std::shared_ptr<const TimedEvent> record_timed(Stream) override { refuse(); }

    void matmul(const Tensor&, bool, const Tensor&, bool, const Tensor&, bool) override { refuse(); }
    void add(const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
    void scale(const Tensor&, float) override { refuse(); }
    void sum(const Tensor&, const Tensor&, bool) override { refuse(); }
    void sum_of_squares(std::span<const Tensor>, const Tensor&, bool) override { refuse(); }
    void divide_by_norm(const Tensor&, const Tensor&, float) override { refuse(); }
    void sum_pieces(const Tensor&, const Tensor&) override { refuse(); }
    void convert(const Tensor&, const Tensor&) override { refuse(); }
    void dequantize(const Tensor&, const Tensor&) override { refuse(); }
    void embedding_forward(const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
    void embedding_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool) override { refuse(); }
    void rmsnorm_forward(const Tensor&, const Tensor&, float, const Tensor&, const Tensor&) override { refuse(); }
    void add_rmsnorm_forward(const Tensor&, const Tensor&, const Tensor&, float, const Tensor&, const Tensor&,
                             const Tensor&) override {
        refuse();
    }
    void rmsnorm_apply(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
    void rmsnorm_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, bool) override {
        refuse();
    }
    void norm_heads(const Shape&, const Tensor&, const Tensor&, const Tensor&, float, const Tensor&,
                    const Tensor&) override {
        refuse();
    }
    void norm_heads_backward(const Shape&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                             const Tensor&, const Tensor&, bool) override {
        refuse();
    }
    void layernorm_forward(const Tensor&, const Tensor&, const Tensor&, float, const Tensor&, const Tensor&) override {
        refuse();
    }
    void layernorm_apply(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void layernorm_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                            const Tensor&, const Tensor&, bool) override {
        refuse();
    }
    void add_bias(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
    void bias_relu(const Tensor&, const Tensor&) override { refuse(); }
    void relu_backward(const Tensor&, const Tensor&) override { refuse(); }
    void sum_rows(const Tensor&, const Tensor&, bool) override { refuse(); }
    void rope(const Shape&, const Tensor&, const Tensor&, const Tensor&, bool) override { refuse(); }
    void attention_forward(const Shape&, const Tensor&, const Documents&, const Tensor&, const Tensor&,
                           tensor::Arena&) override {
        refuse();
    }
    void attention_backward(const Shape&, const Tensor&, const Documents&, const Tensor&, const Tensor&, const Tensor&,
                            const Rotation&, const Tensor&, tensor::Arena&) override {
        refuse();
    }
    void attention_cached(const Shape&, const Tensor&, std::int64_t, const Tensor&, const Tensor&, const Tensor&,
                          tensor::Arena&) override {
        refuse();
    }
    void swiglu_forward(const Tensor&, const Tensor&) override { refuse(); }
    void swiglu_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
    void dropout(const Dropout&, const Tensor&, const Tensor&) override { refuse(); }
    void cross_entropy_forward(const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
    void cross_entropy_backward(const Tensor&, const Tensor&, float, const Tensor&, const Tensor&) override {
        refuse();
    }
    void finish_step(const StepRules&, const Tensor&) override { refuse(); }
    void adamw(const AdamWStep&, const Tensor&, std::span<const OptimizerRange>) override { refuse(); }
    void sgd(const SgdStep&, const Tensor&, std::span<const OptimizerRange>) override { refuse(); }
    void nesterov(float, const Tensor&, std::span<const OptimizerRange>) override { refuse(); }

  private:
    void wait_without_limit(Event) override { refuse(); }

    PlannedGpu gpu_;
    gpu::SdpaLibrary library_;
};

}  // namespace

const char* const kPlannedAttentionLibrary = gpu::kCudnnOfRule;

std::unique_ptr<Backend> make_planned_gpu(const PlannedGpu& gpu) {
    return std::make_unique<PlannedGpuBackend>(gpu);
}

}  // namespace atl::kernels
