// Attention on tensors that are kept in fp16 or bf16: every backend is as near to fp64 as the roundings of
// FlashAttention-2 allow. What the CPU's, which rounds once, gives to the bit is in format_test.cpp.

#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <tuple>

#include "shared/numeric/float16.h"
#include "trainer/kernels/testing/attention_reference.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/documents.h"
#include "trainer/kernels/testing/kept.h"
#include "trainer/kernels/testing/worse.h"

namespace atl::kernels {
namespace {

using tensor::DType;

constexpr double kWorseMax = 1.2;  // times the error of those roundings

double in_bf16(double value) {
    return static_cast<double>(numeric::widen_bf16(numeric::narrow_bf16(static_cast<float>(value))));
}
double in_fp16(double value) {
    return static_cast<double>(numeric::widen_f16(numeric::narrow_f16(static_cast<float>(value))));
}
// To so many significant bits.
template <int kBits>
double in_bits(double value) {
    int exponent = 0;
    const double digits = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(digits, kBits)), exponent - kBits);
}

struct FormatCase {
    const char* name;
    AttentionShape shape;
    std::vector<std::int64_t> segments;  // lengths of the documents in each row
};

void PrintTo(const FormatCase& value, std::ostream* out) {
    *out << value.name;
}

const FormatCase kFormatCases[] = {
    {"OddSizes", {2, 45, 4, 2, 12}, {20, 25}},
    {"HeadsOf64Channels", {1, 100, 4, 2, 64}, {1, 59, 40}},
    {"HeadsOf128Channels", {1, 130, 2, 1, 128}, {37, 93}},
    {"OneDocument", {2, 45, 4, 2, 12}, {45}},
    {"OneDocumentOf64Channels", {2, 77, 4, 2, 64}, {77}},
    {"OneDocumentOf128Channels", {1, 130, 4, 1, 128}, {130}},
};

// Of out and of the gradients of queries, keys and values: relative L2.
using Errors = std::array<double, 4>;

// Inputs in a format, and what they give in fp64.
class InFormat {
  public:
    InFormat(Backend& backend, const FormatCase& of, DType format)
        : shape_(of.shape),
          qkv_(backend, format, rows(), shape_.qkv_columns(), 1, 1.5F),
          dout_(backend, format, rows(), width(), 2),
          starts_(make_starts(of.segments)),
          documents_(backend, starts_, of.shape.length),
          has_documents_(of.segments.size() > 1),
          round_(format == DType::kBF16 ? in_bf16 : in_fp16),
          coarser_(format == DType::kBF16 ? in_bits<7> : in_bits<10>) {
        shape_.format = format;
    }

    const AttentionShape& shape() const { return shape_; }
    std::int64_t rows() const { return shape_.batch * shape_.length; }
    std::int64_t width() const { return shape_.heads * shape_.head_channels; }
    const Kept& qkv() const { return qkv_; }
    const Kept& dout() const { return dout_; }
    Documents documents() const { return has_documents_ ? documents_.get() : Documents(); }
    AttentionReference exact() const { return {shape_, qkv_.wide, starts_, dout_.wide}; }
    // With the roundings of FlashAttention-2, and a mistake.
    AttentionReference rounded(double scale = 1) const {
        return {shape_, qkv_.wide, starts_, dout_.wide, {.round = round_, .scale = scale}};
    }
    AttentionReference with_coarser_factors() const {
        return {shape_, qkv_.wide, starts_, dout_.wide, {.round = round_, .round_factor = coarser_}};
    }
    AttentionReference with_a_forgotten_border() const {
        std::vector<std::int32_t> starts = starts_;
        for (std::int32_t& start : starts) start = std::max(start - 1, 0);
        return {shape_, qkv_.wide, starts, dout_.wide, {.round = round_}};
    }

    template <class Element>
    Errors errors(const std::vector<Element>& out, const std::vector<Element>& gradient,
                  const AttentionReference& exact) const {
        const std::int64_t queries = width(), keys = queries + shape_.kv_heads * shape_.head_channels,
                           all = shape_.qkv_columns();
        return {error(out, exact.out, queries, 0, queries), error(gradient, exact.qkv_gradient, all, 0, queries),
                error(gradient, exact.qkv_gradient, all, queries, keys),
                error(gradient, exact.qkv_gradient, all, keys, all)};
    }

  private:
    std::vector<std::int32_t> make_starts(const std::vector<std::int64_t>& segments) const {
        std::vector<std::int32_t> starts;
        for (std::int64_t b = 0; b < shape_.batch; ++b) {
            std::int64_t begin = 0;
            for (const std::int64_t length : segments) {
                starts.insert(starts.end(), static_cast<std::size_t>(length), static_cast<std::int32_t>(begin));
                begin += length;
            }
        }
        return starts;
    }
    // Of the columns [begin, end) of a matrix.
    template <class Element>
    static double error(const std::vector<Element>& got, const std::vector<double>& exact, std::int64_t columns,
                        std::int64_t begin, std::int64_t end) {
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            const std::int64_t column = static_cast<std::int64_t>(i) % columns;
            if (column < begin || column >= end) continue;
            difference += std::pow(static_cast<double>(got[i]) - exact[i], 2);
            size += exact[i] * exact[i];
        }
        return std::sqrt(difference / size);
    }

    AttentionShape shape_;
    Kept qkv_, dout_;
    std::vector<std::int32_t> starts_;
    OnDeviceDocuments documents_;
    bool has_documents_;
    double (*round_)(double);
    double (*coarser_)(double);
};

// The worst of the errors, over what each may be.
double worst_part(const Errors& errors, const Errors& of_roundings) {
    double worst = 0;
    for (std::size_t i = 0; i < errors.size(); ++i) worst = worse(worst, errors[i] / (kWorseMax * of_roundings[i]));
    return worst;
}

class AttentionFormatTest : public ::testing::TestWithParam<std::tuple<FormatCase, DType, std::string>> {
  protected:
    std::unique_ptr<Backend> backend_ = make_tested_backend(std::get<2>(GetParam()));
    InFormat in_{*backend_, std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(AttentionFormatTest, OutAndGradientsAreAsNearToFp64AsFlashAttentions) {
    const AttentionReference exact = in_.exact(), rounded = in_.rounded();
    const Kept out(*backend_, in_.shape().format, in_.rows(), in_.width(), 3),
        gradient(*backend_, in_.shape().format, in_.rows(), in_.shape().qkv_columns(), 4);
    const OnDevice<std::byte> kept = attention_kept(*backend_, in_.shape());
    tensor::Arena workspace(backend_->allocate(backend_->attention_workspace_bytes(in_.shape())).value());
    backend_->attention_forward(in_.shape(), in_.qkv().narrow.tensor, in_.documents(), out.narrow.tensor, kept.tensor,
                                workspace);
    backend_->attention_backward(in_.shape(), in_.qkv().narrow.tensor, in_.documents(), out.narrow.tensor, kept.tensor,
                                 in_.dout().narrow.tensor, {}, gradient.narrow.tensor, workspace);
    const Errors ours = in_.errors(out.read(*backend_), gradient.read(*backend_), exact);
    const Errors theirs = in_.errors(rounded.out, rounded.qkv_gradient, exact);
    for (std::size_t i = 0; i < ours.size(); ++i)
        EXPECT_LE(ours[i], kWorseMax * theirs[i]) << std::array{"out", "queries", "keys", "values"}[i];
}

// Of one sequence, in steps of many tokens and of one.
TEST_P(AttentionFormatTest, StepsWithACacheAreAsNearToFp64AsFlashAttentions) {
    FormatCase one = std::get<0>(GetParam());
    one.segments = {one.shape.length};
    one.shape.batch = 1;
    const InFormat in(*backend_, one, std::get<1>(GetParam()));
    const std::int64_t width = one.shape.kv_heads * one.shape.head_channels;
    const Kept keys(*backend_, in.shape().format, in.rows() + 7, width, 3),
        values(*backend_, in.shape().format, in.rows() + 7, width, 4),
        out(*backend_, in.shape().format, in.rows(), in.width(), 5);
    std::int64_t past = 0;
    for (const std::int64_t length : {in.rows() - 6, std::int64_t{1}, std::int64_t{5}}) {
        AttentionShape step = in.shape();
        step.length = length;
        tensor::Arena workspace(
            backend_->allocate(backend_->attention_cached_workspace_bytes(step, past + length)).value());
        backend_->attention_cached(step, in.qkv().narrow.tensor.row_range(past, length), past, keys.narrow.tensor,
                                   values.narrow.tensor, out.narrow.tensor.row_range(past, length), workspace);
        past += length;
    }
    const AttentionReference exact = in.exact(), rounded = in.rounded();
    EXPECT_LE(relative_l2(out.read(*backend_), exact.out),
              kWorseMax * in.errors(rounded.out, rounded.qkv_gradient, exact)[0]);
}

std::string format_name(DType format) {
    return format == DType::kF16 ? "fp16" : "bf16";
}

INSTANTIATE_TEST_SUITE_P(All, AttentionFormatTest,
                         ::testing::Combine(::testing::ValuesIn(kFormatCases),
                                            ::testing::Values(DType::kF16, DType::kBF16),
                                            ::testing::ValuesIn(tested_backends())),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param).name) + "_" +
                                    format_name(std::get<1>(test.param)) + "_" + std::get<2>(test.param);
                         });

// What must not pass: a kernel that rounds as FlashAttention-2 does and is wrong in one thing.
class AttentionFormatControlTest : public ::testing::TestWithParam<std::tuple<FormatCase, DType>> {
  protected:
    double worst_of(const AttentionReference& wrong) const {
        const AttentionReference exact = in_.exact(), rounded = in_.rounded();
        return worst_part(in_.errors(wrong.out, wrong.qkv_gradient, exact),
                          in_.errors(rounded.out, rounded.qkv_gradient, exact));
    }
    std::unique_ptr<Backend> backend_ = make_cpu_backend(1).value();
    InFormat in_{*backend_, std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(AttentionFormatControlTest, AScaleOfOnePercentMoreIsFarOff) {
    EXPECT_GT(worst_of(in_.rounded(1.01)), 1.5);
}

TEST_P(AttentionFormatControlTest, AKeyOfTheDocumentBeforeIsFarOff) {
    if (in_.documents().empty()) return;
    EXPECT_GT(worst_of(in_.with_a_forgotten_border()), 10);
}

TEST_P(AttentionFormatControlTest, FactorsOfABitLessAreFarOff) {
    EXPECT_GT(worst_of(in_.with_coarser_factors()), 1.2);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionFormatControlTest,
                         ::testing::Combine(::testing::ValuesIn(kFormatCases),
                                            ::testing::Values(DType::kF16, DType::kBF16)),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param).name) + "_" +
                                    format_name(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace atl::kernels
