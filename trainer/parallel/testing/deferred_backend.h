#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/kernels/backend.h"

namespace atl::parallel {

// A device that is as late as backend.h lets one be: what it is asked for waits until the host asks for its outcome.
// So a host that touches memory too early finds what was there before, and the results differ from the CPU's.
class DeferredBackend : public kernels::Backend {
  public:
    using Tensor = kernels::Tensor;
    using Shape = kernels::AttentionShape;

    explicit DeferredBackend(std::unique_ptr<kernels::Backend> device) : device_(std::move(device)) {}

    std::string name() const override { return device_->name(); }
    Result<tensor::Memory> allocate(std::int64_t bytes) override { return device_->allocate(bytes); }
    std::int64_t attention_workspace_bytes(const Shape& shape) const override {
        return device_->attention_workspace_bytes(shape);
    }
    std::int64_t attention_cached_workspace_bytes(const Shape& shape, std::int64_t keys_max) const override {
        return device_->attention_cached_workspace_bytes(shape, keys_max);
    }

    // --- what waits ---
    void synchronize() override {
        for (const auto& call : waiting_) call();
        waiting_.clear();
    }
    void copy_to_host(const Tensor& from, void* to) override {
        synchronize();
        device_->copy_to_host(from, to);
    }
    double sum(const Tensor& x) override {
        synchronize();
        return device_->sum(x);
    }
    double sum_of_squares(const Tensor& x) override {
        synchronize();
        return device_->sum_of_squares(x);
    }

    // --- what comes later ---
    void copy_from_host(const void* from, const Tensor& to) override {
        std::vector<std::byte> bytes(static_cast<std::size_t>(to.byte_count()));
        std::memcpy(bytes.data(), from, bytes.size());
        later([=, this, bytes = std::move(bytes)] { device_->copy_from_host(bytes.data(), to); });
    }
    void copy(const Tensor& from, const Tensor& to) override {
        later([=, this] { device_->copy(from, to); });
    }
    void zero(const Tensor& x) override {
        later([=, this] { device_->zero(x); });
    }
    void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                bool accumulate) override {
        later([=, this] { device_->matmul(a, transpose_a, b, transpose_b, c, accumulate); });
    }
    void add(const Tensor& a, const Tensor& b, const Tensor& out) override {
        later([=, this] { device_->add(a, b, out); });
    }
    void scale(const Tensor& x, float factor) override {
        later([=, this] { device_->scale(x, factor); });
    }
    void convert(const Tensor& from, const Tensor& to) override {
        later([=, this] { device_->convert(from, to); });
    }
    void embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) override {
        later([=, this] { device_->embedding_forward(table, ids, out); });
    }
    void embedding_backward(const Tensor& ids, const Tensor& out_gradient, const Tensor& table_gradient,
                            bool accumulate) override {
        later([=, this] { device_->embedding_backward(ids, out_gradient, table_gradient, accumulate); });
    }
    void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                         const Tensor& rstd) override {
        later([=, this] { device_->rmsnorm_forward(x, weight, epsilon, out, rstd); });
    }
    void add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                             const Tensor& sum, const Tensor& out, const Tensor& rstd) override {
        later([=, this] { device_->add_rmsnorm_forward(x, delta, weight, epsilon, sum, out, rstd); });
    }
    void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) override {
        later([=, this] { device_->rmsnorm_apply(x, weight, rstd, out); });
    }
    void rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                          const Tensor& residual_gradient, const Tensor& x_gradient, const Tensor& weight_gradient,
                          bool accumulate) override {
        later([=, this] {
            device_->rmsnorm_backward(x, weight, rstd, out_gradient, residual_gradient, x_gradient, weight_gradient,
                                      accumulate);
        });
    }
    void layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon, const Tensor& out,
                           const Tensor& moments) override {
        later([=, this] { device_->layernorm_forward(x, weight, bias, epsilon, out, moments); });
    }
    void layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                         const Tensor& out) override {
        later([=, this] { device_->layernorm_apply(x, weight, bias, moments, out); });
    }
    void layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments, const Tensor& out_gradient,
                            const Tensor& residual_gradient, const Tensor& x_gradient, const Tensor& weight_gradient,
                            const Tensor& bias_gradient, bool accumulate) override {
        later([=, this] {
            device_->layernorm_backward(x, weight, moments, out_gradient, residual_gradient, x_gradient,
                                        weight_gradient, bias_gradient, accumulate);
        });
    }
    void add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) override {
        later([=, this] { device_->add_bias(x, bias, residual, out); });
    }
    void bias_relu(const Tensor& x, const Tensor& bias) override {
        later([=, this] { device_->bias_relu(x, bias); });
    }
    void relu_backward(const Tensor& out, const Tensor& gradient) override {
        later([=, this] { device_->relu_backward(out, gradient); });
    }
    void sum_rows(const Tensor& x, const Tensor& out, bool accumulate) override {
        later([=, this] { device_->sum_rows(x, out, accumulate); });
    }
    void rope(const Shape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
              bool backward) override {
        later([=, this] { device_->rope(shape, table, positions, qkv, backward); });
    }
    void attention_forward(const Shape& shape, const Tensor& qkv, const Tensor& segment_starts, const Tensor& out,
                           const Tensor& log_sum_exp, tensor::Arena& workspace) override {
        later_with(workspace, attention_workspace_bytes(shape), [=, this](tensor::Arena& own) {
            device_->attention_forward(shape, qkv, segment_starts, out, log_sum_exp, own);
        });
    }
    void attention_backward(const Shape& shape, const Tensor& qkv, const Tensor& segment_starts, const Tensor& out,
                            const Tensor& log_sum_exp, const Tensor& out_gradient, const Tensor& qkv_gradient,
                            tensor::Arena& workspace) override {
        later_with(workspace, attention_workspace_bytes(shape), [=, this](tensor::Arena& own) {
            device_->attention_backward(shape, qkv, segment_starts, out, log_sum_exp, out_gradient, qkv_gradient, own);
        });
    }
    void attention_cached(const Shape& shape, const Tensor& qkv, std::int64_t past, const Tensor& key_cache,
                          const Tensor& value_cache, const Tensor& out, tensor::Arena& workspace) override {
        const std::int64_t bytes = attention_cached_workspace_bytes(shape, past + shape.length);
        later_with(workspace, bytes, [=, this](tensor::Arena& own) {
            device_->attention_cached(shape, qkv, past, key_cache, value_cache, out, own);
        });
    }
    void swiglu_forward(const Tensor& gate_up, const Tensor& out) override {
        later([=, this] { device_->swiglu_forward(gate_up, out); });
    }
    void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                         const Tensor& out) override {
        later([=, this] { device_->swiglu_backward(gate_up, out_gradient, gate_up_gradient, out); });
    }
    void dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) override {
        later([=, this] { device_->dropout(dropout, x, out); });
    }
    void cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) override {
        later([=, this] { device_->cross_entropy_forward(logits, targets, losses); });
    }
    void cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                const Tensor& losses) override {
        later([=, this] { device_->cross_entropy_backward(logits, targets, gradient_scale, losses); });
    }
    void adamw(const kernels::AdamWStep& step, const kernels::OptimizerRange& range) override {
        later([=, this] { device_->adamw(step, range); });
    }
    void sgd(const kernels::SgdStep& step, const kernels::OptimizerRange& range) override {
        later([=, this] { device_->sgd(step, range); });
    }

  private:
    void later(std::function<void()> call) { waiting_.push_back(std::move(call)); }
    // The caller's scope has ended by then, so the call keeps the place that it would have taken.
    void later_with(tensor::Arena& workspace, std::int64_t bytes, std::function<void(tensor::Arena&)> call) {
        const tensor::Arena::Scope scope(workspace);
        std::byte* const place = workspace.allocate_bytes(tensor::Category::kWorkspace, bytes);
        later([place, bytes, call = std::move(call)] {
            tensor::Arena own = tensor::Arena::borrowing(place, bytes);
            call(own);
        });
    }

    std::unique_ptr<kernels::Backend> device_;
    std::vector<std::function<void()>> waiting_;
};

}  // namespace atl::parallel
