#include "trainer/train/self_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "trainer/kernels/testing/backends.h"

namespace atl::train {
namespace {

using kernels::FarBackend;
using kernels::Tensor;

std::unique_ptr<kernels::Backend> make_device() {
    return kernels::make_cpu_backend(1, "baseline").value();
}

// Products have one wrong number where they are kept in fp32.
class WrongProducts final : public FarBackend {
  public:
    WrongProducts() : FarBackend(make_device()) {}
    void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                bool accumulate) override {
        FarBackend::matmul(a, transpose_a, b, transpose_b, c, accumulate);
        if (c.dtype() == tensor::DType::kF32) reach(c).f32()[0] += 0.125F;
    }
};

// Something is wrong with the gradients of SwiGLU in fp32.
class WrongSwiglu final : public FarBackend {
  public:
    explicit WrongSwiglu(std::function<void(const Tensor&)> spoil)
        : FarBackend(make_device()), spoil_(std::move(spoil)) {}
    void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                         const Tensor& out) override {
        FarBackend::swiglu_backward(gate_up, out_gradient, gate_up_gradient, out);
        if (gate_up_gradient.dtype() == tensor::DType::kF32) spoil_(reach(gate_up_gradient));
    }

  private:
    std::function<void(const Tensor&)> spoil_;
};

// The gradient of a norm's weight lacks a thousandth, of a tensor that is small beside its unit's matrices.
class WrongNorm final : public FarBackend {
  public:
    WrongNorm() : FarBackend(make_device()) {}
    void rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                          const Tensor& residual_gradient, const Tensor& x_gradient, const Tensor& weight_gradient,
                          bool accumulate) override {
        FarBackend::rmsnorm_backward(x, weight, rstd, out_gradient, residual_gradient, x_gradient, weight_gradient,
                                     accumulate);
        scale(weight_gradient, 0.999F);
    }
};

// The gradient of the weight of the keys' norm lacks a thousandth.
class WrongHeadNorm final : public FarBackend {
  public:
    WrongHeadNorm() : FarBackend(make_device()) {}
    void norm_heads_backward(const kernels::AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                             const Tensor& key_weight, const Tensor& rstd, const Tensor& gradient,
                             const Tensor& query_weight_gradient, const Tensor& key_weight_gradient,
                             bool accumulate) override {
        FarBackend::norm_heads_backward(shape, qkv, query_weight, key_weight, rstd, gradient, query_weight_gradient,
                                        key_weight_gradient, accumulate);
        scale(key_weight_gradient, 0.999F);
    }
};

// Of gradients in bf16 that come from SwiGLU the first two channels are exchanged.
class TurnedInBf16 final : public FarBackend {
  public:
    TurnedInBf16() : FarBackend(make_device()) {}
    void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                         const Tensor& out) override {
        FarBackend::swiglu_backward(gate_up, out_gradient, gate_up_gradient, out);
        const Tensor gradient = reach(gate_up_gradient);
        if (gradient.dtype() != tensor::DType::kBF16) return;
        auto* const elements = static_cast<std::uint16_t*>(gradient.data());
        for (std::int64_t row = 0; row < gradient.rows(); ++row)
            std::swap(elements[row * gradient.columns()], elements[row * gradient.columns() + 1]);
    }
};

// In bf16 the second document's queries see the last key of the first one, in the backward pass.
class ForgottenBorder final : public FarBackend {
  public:
    ForgottenBorder() : FarBackend(make_device()) {}
    void attention_backward(const kernels::AttentionShape& shape, const Tensor& qkv,
                            const kernels::Documents& documents, const Tensor& out, const Tensor& kept,
                            const Tensor& out_gradient, const kernels::Rotation& rotation, const Tensor& qkv_gradient,
                            tensor::Arena& workspace) override {
        if (shape.format == tensor::DType::kBF16) {
            const Tensor starts = reach(documents.segment_starts);
            auto* const begins = static_cast<std::int32_t*>(starts.data());
            for (std::int64_t t = 0; t < starts.element_count(); ++t) begins[t] = std::max(begins[t] - 1, 0);
        }
        FarBackend::attention_backward(shape, qkv, documents, out, kept, out_gradient, rotation, qkv_gradient,
                                       workspace);
    }
};

struct Checked {
    Status status;
    std::size_t count = 0;
    std::set<std::string> failed;  // by name
};

Checked check(kernels::Backend& backend) {
    Checked checked;
    checked.status = check_backend(backend, [&](const CheckResult& result) {
        ++checked.count;
        if (!result.ok()) checked.failed.insert(result.name);
    });
    return checked;
}

TEST(SelfCheckTest, EveryBackendPasses) {
    for (const std::string& name : kernels::tested_backends()) {
        const Checked checked = check(*kernels::make_tested_backend(name));
        EXPECT_TRUE(checked.status.ok());
        EXPECT_GT(checked.count, 12U);
        EXPECT_TRUE(checked.failed.empty()) << name << " " << *checked.failed.begin();
    }
}

TEST(SelfCheckTest, AProductWithOneWrongNumberIsFound) {
    WrongProducts backend;
    const Checked checked = check(backend);
    ASSERT_FALSE(checked.status.ok());
    EXPECT_EQ(checked.status.error().code, ErrorCode::kInternal) << "the program's exit code is 1";
    EXPECT_TRUE(checked.failed.contains("matmul 1x3x3"));
    EXPECT_TRUE(checked.failed.contains("matmul 301x290x523, first transposed, second transposed, added"));
    EXPECT_TRUE(checked.failed.contains("bf16 matmul 256x192x512, second transposed"));
}

TEST(SelfCheckTest, AGradientThatLacksAHundredthIsFound) {
    WrongSwiglu backend([](const Tensor& gradient) {
        for (std::int64_t i = 0; i < gradient.element_count(); ++i) gradient.f32()[i] *= 0.99F;
    });
    const Checked checked = check(backend);
    ASSERT_FALSE(checked.status.ok());
    EXPECT_TRUE(checked.failed.contains("gradient of model.layers.0.mlp.gate_proj.weight"));
    EXPECT_TRUE(checked.failed.contains("gradient of model.embed_tokens.weight"));
    for (const char* earlier :
         {"loss", "gradient of lm_head.weight", "gradient of model.layers.1.mlp.down_proj.weight"})
        EXPECT_FALSE(checked.failed.contains(earlier)) << earlier << " comes before it";
}

TEST(SelfCheckTest, AGradientThatIsTurnedIsFound) {
    // Across the gradient: it hardly changes a loss along it.
    WrongSwiglu backend([](const Tensor& gradient) { std::swap(gradient.f32()[0], gradient.f32()[1]); });
    const Checked checked = check(backend);
    EXPECT_TRUE(checked.failed.contains("gradient of model.layers.1.mlp.gate_proj.weight"));
    EXPECT_FALSE(checked.failed.contains("gradient of lm_head.weight"));
}

TEST(SelfCheckTest, AnErrorInASmallTensorIsFoundBesideLargeOnes) {
    WrongNorm backend;
    std::set<std::string> norms;
    for (const std::string model : {"", "qwen3: "}) {
        for (const char* name : {"layers.0.input_layernorm", "layers.0.post_attention_layernorm",
                                 "layers.1.input_layernorm", "layers.1.post_attention_layernorm", "norm"})
            norms.insert(model + "gradient of model." + name + ".weight");
    }
    EXPECT_EQ(check(backend).failed, norms);
}

TEST(SelfCheckTest, AnErrorInWhatLlamaLacksIsFound) {
    WrongHeadNorm backend;
    EXPECT_EQ(check(backend).failed,
              (std::set<std::string>{"qwen3: gradient of model.layers.0.self_attn.k_norm.weight",
                                     "qwen3: gradient of model.layers.1.self_attn.k_norm.weight"}));
}

TEST(SelfCheckTest, AGradientInBf16ThatIsTurnedIsFound) {
    TurnedInBf16 backend;
    const Checked checked = check(backend);
    EXPECT_TRUE(checked.failed.contains("bf16: gradient of model.layers.0.mlp.gate_proj.weight"));
    EXPECT_FALSE(checked.failed.contains("bf16: gradient of model.layers.0.mlp.down_proj.weight")) << "comes before it";
}

TEST(SelfCheckTest, AForgottenBorderOfDocumentsInBf16IsFound) {
    ForgottenBorder backend;
    const std::set<std::string> failed = check(backend).failed;
    EXPECT_TRUE(failed.contains("bf16: gradient of model.layers.0.self_attn.q_proj.weight"));
    EXPECT_TRUE(failed.contains("bf16: gradient of model.layers.0.self_attn.k_proj.weight"));
    EXPECT_FALSE(failed.contains("bf16: gradient of model.layers.0.self_attn.o_proj.weight")) << "comes before it";
}

TEST(SelfCheckTest, WhatIsNoNumberIsFound) {
    WrongSwiglu backend([](const Tensor& gradient) { gradient.f32()[0] = std::numeric_limits<float>::quiet_NaN(); });
    EXPECT_TRUE(check(backend).failed.contains("gradient of model.layers.0.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace atl::train
