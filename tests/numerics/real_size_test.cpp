// One layer as large as those of a model of 7 billion parameters, on a row of 4096 tokens, against fp64.
//
// What fp64 can afford decides what is compared. Of the row's 30 documents three short ones, spread over it, have
// labels; so the gradient of every parameter depends on their tokens alone, and the reference needs no others, while
// the trainer computes with all of them. What sums over all tokens or over long documents is compared operation by
// operation, in a sample of the elements. In a build for GPUs all of it runs on this machine's, too.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <ostream>
#include <tuple>

#include "tests/numerics/engine_model.h"
#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/reference/reference_model.h"
#include "trainer/weights/storage.h"

namespace atl::numerics {
namespace {

using reference::Matrix;
using tensor::DType;

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1000,
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 1, "num_attention_heads": 32,
    "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": false})";
constexpr std::int64_t kTokens = 4096, kHidden = 4096, kVocabulary = 1000;
constexpr std::array<std::int64_t, 30> kDocuments = {3,  130, 61, 250, 17,  900, 5,   88, 301, 40,
                                                     12, 200, 75, 6,   150, 33,  410, 9,  64,  128,
                                                     4,  222, 51, 180, 95,  20,  310, 70, 256, 6};
static_assert(std::accumulate(kDocuments.begin(), kDocuments.end(), std::int64_t{0}) == kTokens);
// Those that have labels, of 13 tokens together.
constexpr std::array<std::size_t, 3> kLabelled = {0, 20, 29};

// Of the embedding's channels these are a hundred times larger than the others, as some are in trained models.
bool is_heavy(std::int64_t channel) {
    return channel % 1024 == 7 || channel == 2048;
}

// Values that bf16 holds, so that one reference serves all formats: in steps of 1/128 of their size.
std::vector<float> weight_of(const model::Parameter& parameter) {
    std::vector<float> values(static_cast<std::size_t>(parameter.element_count()));
    const bool is_embedding = parameter.name.find("embed_tokens") != std::string::npos;
    const float size = is_embedding || parameter.is_norm ? 0.5F : 0.03125F;
    const std::uint64_t seed = seed_of(parameter.name);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto step = static_cast<int>(mixed(seed, i) >> 56) - 128;  // in [−128, 128)
        values[i] = static_cast<float>(step) / 128 * size;
        if (parameter.is_norm) values[i] += 1;
        if (is_embedding && is_heavy(static_cast<std::int64_t>(i) % kHidden)) values[i] *= 128;
    }
    return values;
}

// Rows of tokens in documents: of the whole row, or of the documents with labels alone.
struct Rows {
    std::vector<std::int32_t> ids, labels, documents;

    explicit Rows(bool labelled_alone) {
        const std::uint64_t seed = seed_of("tokens");
        std::uint64_t token = 0;
        for (std::size_t document = 0; document < kDocuments.size(); ++document) {
            const bool has_labels = std::ranges::find(kLabelled, document) != kLabelled.end();
            for (std::int64_t i = 0; i < kDocuments[document]; ++i, ++token) {
                if (labelled_alone && !has_labels) continue;
                ids.push_back(static_cast<std::int32_t>(mixed(seed, token) % kVocabulary));
                labels.push_back(has_labels ? ids.back() : kernels::kIgnoredLabel);
                documents.push_back(static_cast<std::int32_t>(document));
            }
        }
    }
    model::HostBatch batch() const {
        return {.shape = {1, static_cast<std::int64_t>(ids.size())},
                .input_ids = ids,
                .labels = labels,
                .segment_ids = documents};
    }
};

// The loss and each parameter's gradient.
struct Outcome {
    double loss = 0;
    std::map<std::string, std::vector<float>> gradients;
};

Outcome in_fp64(const model::ModelConfig& config) {
    std::map<std::string, Matrix> parameters;
    for (const model::FsdpUnit& unit : model::make_model(config).units) {
        for (const model::Parameter& parameter : unit.parameters) {
            Matrix value(parameter.shape.size() == 1 ? 1 : parameter.shape[0], parameter.shape.back());
            std::ranges::copy(weight_of(parameter), value.values.begin());
            parameters.emplace(parameter.name, std::move(value));
        }
    }
    reference::ReferenceModel model(config, std::move(parameters));
    Outcome outcome;
    outcome.loss = model.loss_and_gradients(Rows(true).batch());
    for (const auto& [name, gradient] : model.gradients()) {
        outcome.gradients[name].assign(gradient.values.begin(), gradient.values.end());
    }
    return outcome;
}

// |ours − exact| / |exact| of a matrix's elements, apart those of the heavy channels, beside which others are small.
double error_of(const std::vector<float>& ours, const std::vector<float>& exact) {
    std::array<double, 2> difference{}, size{};
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const std::size_t part = is_heavy(static_cast<std::int64_t>(i) % kHidden) ? 1 : 0;
        const auto wanted = static_cast<double>(exact[i]), delta = static_cast<double>(ours[i]) - wanted;
        difference[part] += delta * delta;
        size[part] += wanted * wanted;
    }
    return std::sqrt(worse(difference[0] / size[0], difference[1] / size[1]));
}

struct Case {
    DType format;
    double loss_tolerance;                           // of how far the loss is from ln V, that of no knowledge
    double gradient_tolerance, attention_tolerance;  // relative L2
};

void PrintTo(const Case& value, std::ostream* out) {
    *out << (value.format == DType::kF32 ? "fp32" : "bf16");
}

// The CPU's widest instruction set, and a GPU.
std::vector<std::string> backends() {
    std::vector<std::string> names = {kernels::cpu_instruction_sets().front()};
    const std::vector<std::string> all = kernels::tested_backends();
    if (std::ranges::find(all, kernels::kGpu) != all.end()) names.emplace_back(kernels::kGpu);
    return names;
}

class RealSizeTest : public testing::TestWithParam<std::tuple<Case, std::string>> {
  protected:
    static const Case& given() { return std::get<0>(GetParam()); }
    // Relative L2, of sums in fp32. A GPU's instructions for bf16 add with fewer digits.
    static double sum_tolerance() {
        return given().format == DType::kBF16 && std::get<1>(GetParam()) == kernels::kGpu ? 2e-5 : 2e-6;
    }
    static std::unique_ptr<kernels::Backend> make_backend() {
        return kernels::make_tested_backend(std::get<1>(GetParam()));
    }
    static const Outcome& wanted() {
        static const Outcome outcome = in_fp64(model_config::parse_config(kConfig).value());
        return outcome;
    }
};

TEST_P(RealSizeTest, DISABLED_TheGradientsOfALayerAreThoseOfFp64) {
    const auto [format, loss_tolerance, gradient_tolerance, unused] = given();
    const auto config = model_config::parse_config(kConfig).value();
    const Outcome& exact = wanted();
    const auto backend = make_backend();
    EngineModel ours(config, {.weights = format, .activations = format, .residual = format}, {1, kTokens}, *backend);
    for (const model::FsdpUnit& unit : ours.model().units) {
        for (const model::Parameter& parameter : unit.parameters) ours.set_weight(parameter.name, weight_of(parameter));
    }
    const double from_no_knowledge = std::abs(exact.loss - std::log(static_cast<double>(kVocabulary)));
    EXPECT_NEAR(ours.train(Rows(false).batch()), exact.loss, loss_tolerance * from_no_knowledge);
    for (const auto& [name, gradient] : exact.gradients) {
        const double error = error_of(ours.gradient(name), gradient);
        EXPECT_LE(error, gradient_tolerance) << name;
    }
}

// Operations, on values with heavy channels, in the format of the case.

// Values that bf16 holds, those of every 512th column a hundred times larger.
std::vector<float> heavy_values(std::int64_t rows, std::int64_t columns, const std::string& name) {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    const std::uint64_t seed = seed_of(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto step = static_cast<int>(mixed(seed, i) >> 56) - 128;
        values[i] = static_cast<float>(step) / (static_cast<std::int64_t>(i) % columns % 512 == 7 ? 1 : 128);
    }
    return values;
}

// Room on a device for the tensors of one operation.
class Room {
  public:
    Room(kernels::Backend& backend, std::int64_t bytes) : backend_(backend), arena_(backend.allocate(bytes).value()) {}
    tensor::Arena& arena() { return arena_; }
    tensor::Tensor make(DType format, std::initializer_list<std::int64_t> shape) {
        return arena_.allocate(tensor::Category::kWorkspace, format, shape);
    }
    tensor::Tensor make(DType format, std::initializer_list<std::int64_t> shape, const std::vector<float>& values) {
        tensor::Tensor tensor = make(format, shape);
        check(weights::store_values(values, tensor, backend_), "a value is beyond the format's range");
        return tensor;
    }
    std::vector<float> read(const tensor::Tensor& tensor) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.byte_count()));
        backend_.copy_to_host(tensor, bytes.data());
        std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
        check(weights::widen(weights::file_dtype(tensor.dtype()), bytes, values), "a result is not finite");
        return values;
    }

  private:
    kernels::Backend& backend_;
    tensor::Arena arena_;
};

// Three hundred elements of c [rows, columns], apart those of columns of b that are heavy: their errors from the sums
// over k of a[k, row] · b[k, column], of which `lost` are left out.
double sampled_error(const std::vector<float>& c, const std::vector<float>& a, const std::vector<float>& b,
                     std::int64_t rows, std::int64_t columns, std::int64_t lost) {
    std::array<std::vector<float>, 2> ours, exact;
    const std::int64_t depth = static_cast<std::int64_t>(a.size()) / rows;
    for (std::uint64_t sample = 0; sample < 300; ++sample) {
        const auto row = static_cast<std::int64_t>(mixed(1, sample) % static_cast<std::uint64_t>(rows));
        auto column = static_cast<std::int64_t>(mixed(2, sample) % static_cast<std::uint64_t>(columns));
        if (sample % 2 == 1) column = column / 512 * 512 + 7;
        double sum = 0;
        for (std::int64_t k = 0; k < depth - lost; ++k) {
            sum += static_cast<double>(a[static_cast<std::size_t>(k * rows + row)]) *
                   static_cast<double>(b[static_cast<std::size_t>(k * columns + column)]);
        }
        ours[sample % 2].push_back(c[static_cast<std::size_t>(row * columns + column)]);
        exact[sample % 2].push_back(static_cast<float>(sum));
    }
    return worse(relative_l2(ours[0], exact[0]), relative_l2(ours[1], exact[1]));
}

// The gradient of a matrix [hidden, feed-forward] is a sum over all tokens, in fp32.
TEST_P(RealSizeTest, AWeightsGradientIsTheSumOverAllTokens) {
    constexpr std::int64_t kColumns = 11008;
    const DType format = given().format;
    const auto backend = make_backend();
    const auto gradient = heavy_values(kTokens, kHidden, "gradient"), input = heavy_values(kTokens, kColumns, "input");
    Room room(*backend, (kTokens * (kHidden + kColumns) + kHidden * kColumns) * 4 + 3 * tensor::kAlignmentBytes);
    const tensor::Tensor a = room.make(format, {kTokens, kHidden}, gradient);
    const tensor::Tensor b = room.make(format, {kTokens, kColumns}, input);
    const tensor::Tensor c = room.make(DType::kF32, {kHidden, kColumns});
    backend->matmul(a, true, b, false, c, false);
    const std::vector<float> ours = room.read(c);
    EXPECT_LE(sampled_error(ours, gradient, input, kHidden, kColumns, 0), sum_tolerance());
    EXPECT_GT(sampled_error(ours, gradient, input, kHidden, kColumns, 1), 100 * sum_tolerance())
        << "one token left out";
}

// Attention of a document and a head, and the gradients of its queries, keys and values, in fp64.
std::array<Matrix, 4> attention_in_fp64(const std::array<Matrix, 3>& inputs, const Matrix& gradient,
                                        std::int64_t first_seen) {
    reference::Tape tape;
    const std::int64_t length = gradient.rows, channels = gradient.columns;
    const auto query = tape.borrow(inputs[0]), key = tape.borrow(inputs[1]), value = tape.borrow(inputs[2]);
    std::vector<std::int64_t> starts(static_cast<std::size_t>(length), 0);
    starts.back() = first_seen;
    const double factor = 1 / std::sqrt(static_cast<double>(channels));
    const auto out = tape.attention(query, key, value, {length, channels, starts, factor});
    tape.backward(out, gradient);
    return {tape.value(out), tape.gradient(query), tape.gradient(key), tape.gradient(value)};
}

// Attention over the row: 32 heads of 128 channels, of which some are heavy in the values.
struct Attention {
    static constexpr std::int64_t kHeads = 32, kChannels = 128, kWidth = 3 * kHeads * kChannels;

    explicit Attention(DType dtype)
        : format(dtype),
          shape{1, kTokens, kHeads, kHeads, kChannels, dtype},
          out_gradient(heavy_values(kTokens, kHidden, "out")) {
        qkv = heavy_values(kTokens, kWidth, "qkv");
        for (std::size_t i = 0; i < qkv.size(); ++i) {  // queries and keys that leave softmax many keys to choose from
            const bool is_value = static_cast<std::int64_t>(i) % kWidth >= 2 * kHidden;
            if (!is_value) qkv[i] = std::clamp(qkv[i], -4.0F, 4.0F);
        }
        for (const std::int64_t length : kDocuments) {
            starts.insert(starts.end(), static_cast<std::size_t>(length), static_cast<std::int32_t>(starts.size()));
        }
    }

    void run(kernels::Backend& backend) {
        const std::int64_t kept_bytes = backend.attention_kept_bytes(shape);
        Room room(backend, (2 * kTokens * kWidth + 2 * kTokens * kHidden + kTokens) * 4 + kept_bytes +
                               backend.attention_workspace_bytes(shape) + 8 * tensor::kAlignmentBytes);
        const tensor::Tensor given = room.make(format, {kTokens, kWidth}, qkv);
        const tensor::Tensor slope = room.make(format, {kTokens, kHidden}, out_gradient);
        const tensor::Tensor result = room.make(format, {kTokens, kHidden});
        const tensor::Tensor gradient = room.make(format, {kTokens, kWidth});
        const tensor::Tensor kept = room.make(DType::kU8, {kept_bytes});
        const tensor::Tensor first = room.make(DType::kI32, {1, kTokens});
        backend.copy_from_host(starts.data(), first);
        backend.attention_forward(shape, given, {first}, result, kept, room.arena());
        backend.attention_backward(shape, given, {first}, result, kept, slope, {}, gradient, room.arena());
        out = room.read(result);
        qkv_gradient = room.read(gradient);
    }

    // `part` 0, 1, 2: queries, keys, values.
    Matrix part_of(const std::vector<float>& values, std::int64_t columns, std::size_t document, std::int64_t head,
                   std::int64_t part) const {
        const std::int64_t begin = std::accumulate(
            kDocuments.begin(), kDocuments.begin() + static_cast<std::ptrdiff_t>(document), std::int64_t{0});
        Matrix matrix(kDocuments[document], kChannels);
        for (std::int64_t row = 0; row < matrix.rows; ++row) {
            for (std::int64_t c = 0; c < kChannels; ++c) {
                matrix(row, c) = static_cast<double>(
                    values[static_cast<std::size_t>((begin + row) * columns + (part * kHeads + head) * kChannels + c)]);
            }
        }
        return matrix;
    }

    // The worst error of what is compared of a document and a head: the result and three gradients.
    double error(std::size_t document, std::int64_t head, std::int64_t first_seen = 0) const {
        const auto wanted =
            attention_in_fp64({part_of(qkv, kWidth, document, head, 0), part_of(qkv, kWidth, document, head, 1),
                               part_of(qkv, kWidth, document, head, 2)},
                              part_of(out_gradient, kHidden, document, head, 0), first_seen);
        double worst = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            const Matrix ours = i == 0
                                    ? part_of(out, kHidden, document, head, 0)
                                    : part_of(qkv_gradient, kWidth, document, head, static_cast<std::int64_t>(i) - 1);
            const std::vector<float> a(ours.values.begin(), ours.values.end());
            const std::vector<float> b(wanted[i].values.begin(), wanted[i].values.end());
            worst = worse(worst, relative_l2(a, b));
        }
        return worst;
    }

    DType format;
    kernels::AttentionShape shape;
    std::vector<std::int32_t> starts;
    std::vector<float> qkv, out_gradient, out, qkv_gradient;
};

TEST_P(RealSizeTest, AttentionOfDocumentsIsThatOfFp64) {
    Attention attention(given().format);
    attention.run(*make_backend());
    const double tolerance = given().attention_tolerance;
    const std::array<std::pair<std::size_t, std::int64_t>, 4> sample = {{{0, 0}, {5, 17}, {16, 31}, {29, 3}}};
    for (const auto& [document, head] : sample) {
        EXPECT_LE(attention.error(document, head), tolerance) << "document " << document << ", head " << head;
    }
    EXPECT_GT(attention.error(6, 5, 1), 10 * tolerance) << "a query that does not see one of five keys";
}

INSTANTIATE_TEST_SUITE_P(All, RealSizeTest,
                         testing::Combine(testing::Values(Case{DType::kF32, 1e-6, 5e-6, 5e-6},
                                                          Case{DType::kBF16, 4e-3, 2e-2, 1e-2}),
                                          testing::ValuesIn(backends())),
                         [](const auto& instance) {
                             const bool is_wide = std::get<0>(instance.param).format == DType::kF32;
                             return std::string(is_wide ? "fp32_" : "bf16_") + std::get<1>(instance.param);
                         });

}  // namespace
}  // namespace atl::numerics
